"""How unequal the work of devices is that run in lock-step.

Where all devices run an op at the same time and nobody goes on before the slowest has ended, a
round takes as long as its largest op, and the others wait. So the largest work of each round is
compared with the mean: 1 is equal work, and 1.5 says that the rounds take half as long again as
they would if the same work were spread evenly.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from penstock.core.meaning import ATTENDING
from penstock.core.schedule import Schedule
from penstock.cost.model import Cost, UnitCost
from penstock.sim import simulate
from penstock.sim.loans import with_loans

Round = dict[int, list[int]]
"""Rows of the schedule's table that each device runs at the same time."""


class Imbalance(NamedTuple):
    """Work of some rounds, in the unit of the loads."""

    longest: Fraction
    """The largest load of each round, added up."""
    mean: Fraction
    """The mean load of each round, added up."""

    @property
    def ratio(self) -> Fraction:
        return self.longest / self.mean


def rounds_of(schedule: Schedule) -> list[Round]:
    """What devices run at the same time, in the rounds in which all of them have work.

    Ops with attention of one kind belong together if they start together where each op of this kind
    takes the same time and all others take none: then only their own order is left.
    """
    return [
        found
        for kind in dict.fromkeys(op.kind for op in schedule.table.ops())
        if kind in ATTENDING
        for found in _rounds_of_kind(schedule, kind)
        if len(found) == schedule.shape.devices
    ]


def _rounds_of_kind(schedule: Schedule, kind: str) -> list[Round]:
    table, starts = schedule.table, defaultdict[int, Round](dict)
    times = {op: Fraction(op.kind == kind) for op in table.ops()}
    timeline = simulate(schedule, UnitCost(op_times=times))
    for row, op in enumerate(table.ops()):
        if op.kind == kind:
            found = starts[int(timeline.start[row])]
            found.setdefault(int(table.device[row]), []).append(row)
    return [starts[start] for start in sorted(starts)]


def imbalance(rounds: Iterable[Round], loads: Sequence[Fraction]) -> Imbalance:
    """Of the load of each row."""
    longest = mean = Fraction(0)
    for found in rounds:
        each = [sum((loads[row] for row in rows), Fraction(0)) for rows in found.values()]
        longest += max(each)
        mean += sum(each, Fraction(0)) / len(each)
    return Imbalance(longest, mean)


def predicted_loads(schedule: Schedule, cost: Cost) -> list[Fraction]:
    """Time of each row, with the attention that it does for others and without what it lends."""
    scaled = with_loans(schedule, cost, cost.durations(schedule))
    return [int(ticks) * scaled.tick for ticks in scaled.ticks]
