"""What lent attention work does to time: it moves to another device, and has to travel."""

from fractions import Fraction
from math import lcm

import numpy as np

from penstock.core.groups import groups_of
from penstock.core.schedule import Loan, Schedule
from penstock.core.table import Ticks
from penstock.cost.model import Cost
from penstock.cost.shares import Scaled, finer


def with_loans(schedule: Schedule, cost: Cost, scaled: Scaled) -> Scaled:
    """Move the time of lent key/value slices from the heavy op to the light one."""
    if not schedule.loans:
        return scaled
    row_of = schedule.table.rows_by_op
    shape = schedule.shape
    lent = [(loan, cost.loan(loan.heavy, shape) * loan.slices) for loan in schedule.loans]
    tick = Fraction(1, lcm(scaled.tick.denominator, *(time.denominator for _, time in lent)))
    length, tick = finer(scaled, tick)
    length = length.copy()
    for loan, time in lent:
        length[row_of[loan.heavy]] -= int(time / tick)
        length[row_of[loan.light]] += int(time / tick)
    return Scaled(np.maximum(length, 0), tick)


def with_exchanges(schedule: Schedule, cost: Cost, length: Ticks, tick: Fraction) -> Ticks:
    """Let ops in lock-step take at least as long as what they exchange is on its way.

    Both compute meanwhile. The result is on its way back only after the queries have come.
    """
    groups = groups_of(schedule)
    for loan in schedule.loans:
        row = schedule.table.rows_by_op[loan.heavy][0]
        group = int(groups.of_row[row])
        members = groups.rows[groups.start[group] : groups.start[group + 1]]
        travel = round(exchange_time(schedule, cost, loan) / tick)
        length[members] = np.maximum(length[members], travel)
    return length


def exchange_time(schedule: Schedule, cost: Cost, loan: Loan) -> Fraction:
    """How long a loan is on its way, there and back."""
    rows, device = schedule.table.rows_by_op, schedule.table.device
    heavy, light = (int(device[rows[op][0]]) for op in (loan.heavy, loan.light))
    moved = cost.exchange(loan, schedule.shape)
    out, home = cost.link(heavy, light), cost.link(light, heavy)
    return out.latency + moved.there * out.per_byte + home.latency + moved.back * home.per_byte
