"""What lent attention work does to time: it moves to another device, and has to travel.

A schedule has as many loans as ops, and few that differ: fractions are worked out once for those
that are alike.
"""

from collections.abc import Hashable, Sequence
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from penstock.core.groups import groups_of
from penstock.core.named_rows import loan_rows
from penstock.core.schedule import Loan, Schedule
from penstock.core.table import Ticks
from penstock.cost.exchange import Exchange
from penstock.cost.model import Cost, Link
from penstock.cost.shares import Scaled, finer


def with_loans(schedule: Schedule, cost: Cost, scaled: Scaled) -> Scaled:
    """Move the time of lent key/value slices from the heavy op to the light one."""
    if not schedule.loans:
        return scaled
    shape = schedule.shape
    each = [(cost.loan(loan.heavy, shape), loan.slices) for loan in schedule.loans]
    different, number = _different([(id(time), slices) for time, slices in each])
    lent = [time * slices for time, slices in (each[at] for at in different)]
    tick = Fraction(1, lcm(scaled.tick.denominator, *(time.denominator for time in lent)))
    length, tick = finer(scaled, tick)
    length, rows = length.copy(), loan_rows(schedule)
    ticks = np.array([int(time / tick) for time in lent], np.int64)[number]
    np.subtract.at(length, rows[:, 0], ticks)
    np.add.at(length, rows[:, 1], ticks)
    return Scaled(np.maximum(length, 0), tick)


def with_exchanges(schedule: Schedule, cost: Cost, length: Ticks, tick: Fraction) -> Ticks:
    """Let ops in lock-step take at least as long as what they exchange is on its way.

    Both compute meanwhile. The result is on its way back only after the queries have come.
    """
    if not schedule.loans:
        return length
    shape, ends = schedule.shape, _ends(schedule).tolist()
    moved = [cost.exchange(loan, shape) for loan in schedule.loans]
    links = {(a, b): (cost.link(a, b), cost.link(b, a)) for a, b in {*map(tuple, ends)}}
    ways = [links[heavy, light] for heavy, light in ends]
    keys = ((id(each), id(out), id(home)) for each, (out, home) in zip(moved, ways))
    different, number = _different([*keys])
    times = [_exchange_time(moved[at], *ways[at]) for at in different]
    travel = np.array([round(time / tick) for time in times], np.int64)[number]
    groups = groups_of(schedule)
    longest = np.zeros(len(groups.start), np.int64)
    np.maximum.at(longest, groups.of_row[loan_rows(schedule)[:, 0]], travel)
    members = groups.rows
    length[members] = np.maximum(length[members], longest[groups.of_row[members]])
    return length


def exchange_time(schedule: Schedule, cost: Cost, loan: Loan) -> Fraction:
    """How long a loan is on its way, there and back."""
    number = schedule.loans.index(loan)
    heavy, light = _ends(schedule)[number].tolist()
    moved = cost.exchange(loan, schedule.shape)
    return _exchange_time(moved, cost.link(heavy, light), cost.link(light, heavy))


def _exchange_time(moved: Exchange, out: Link, home: Link) -> Fraction:
    """The same over the links from the heavy device and back to it."""
    return out.latency + moved.there * out.per_byte + home.latency + moved.back * home.per_byte


def _ends(schedule: Schedule) -> NDArray[np.int64]:
    """Devices of the two ops of each loan."""
    return np.asarray(schedule.table.device[loan_rows(schedule)], np.int64)


def _different(keys: Sequence[Hashable]) -> tuple[list[int], NDArray[np.int64]]:
    """The place of one of each key, and for all the number of theirs among these."""
    known: dict[Hashable, int] = {}
    places, numbers = list[int](), list[int]()
    for place, key in enumerate(keys):
        if key not in known:
            known[key] = len(known)
            places.append(place)
        numbers.append(known[key])
    return places, np.array(numbers, np.int64)
