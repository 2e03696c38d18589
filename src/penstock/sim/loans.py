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
    groups, known = groups_of(schedule), dict[tuple[object, ...], int]()
    for loan in schedule.loans:
        row = schedule.table.rows_by_op[loan.heavy][0]
        group = int(groups.of_row[row])
        members = groups.rows[groups.start[group] : groups.start[group + 1]]
        key = (*cost.exchange(loan, schedule.shape), *_ends(schedule, loan))
        if key not in known:  # most are like others, and fractions are slow
            known[key] = round(exchange_time(schedule, cost, loan) / tick)
        travel = known[key]
        length[members] = np.maximum(length[members], travel)
    return length


def exchange_time(schedule: Schedule, cost: Cost, loan: Loan) -> Fraction:
    """How long a loan is on its way, there and back."""
    heavy, light = _ends(schedule, loan)
    moved = cost.exchange(loan, schedule.shape)
    out, home = cost.link(heavy, light), cost.link(light, heavy)
    return out.latency + moved.there * out.per_byte + home.latency + moved.back * home.per_byte


def _ends(schedule: Schedule, loan: Loan) -> tuple[int, int]:
    """Devices of the two ops of a loan."""
    rows, device = schedule.table.rows_by_op, schedule.table.device
    return int(device[rows[loan.heavy][0]]), int(device[rows[loan.light][0]])
