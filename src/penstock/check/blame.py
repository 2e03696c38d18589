"""Whom to blame for a circle of waiting lanes: the op whose move breaks it.

Every lane in the circle has an op at its head that waits, and behind it the op that another lane
waits for. All look equally guilty; but usually one op was put in the wrong place, and moving it
alone makes the schedule legal. So each candidate is tried.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.core.graph import graph_of
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import play_schedule

TRIED_UP_TO = 5_000
"""Ops up to which moves are tried; beyond, the answer would take longer than it is worth."""


class Misplacement(NamedTuple):
    """`op` stands at row `source` and should stand next to the op at row `target`, same lane."""

    source: int
    target: int

    def words(self, schedule: Schedule) -> str:
        op, other = (schedule.table.op(row) for row in self)
        return f"move {op} {'after' if self.source < self.target else 'before'} {other}"


def culprit(schedule: Schedule, inverted: Sequence[tuple[int, int]]) -> Misplacement | None:
    """The first single move that makes a stuck schedule run, if there is one.

    `inverted` are pairs of rows of one lane, of which the first may have to follow the second.
    """
    if len(schedule.table) > TRIED_UP_TO:
        return None
    candidates = [Misplacement(early, late) for early, late in inverted]
    candidates += [Misplacement(late, early) for early, late in inverted]
    return next((move for move in candidates if _runs(_moved(schedule, move))), None)


def _moved(schedule: Schedule, move: Misplacement) -> Schedule:
    """The schedule with one op next to another: behind it if it stood before, else before it."""
    table = schedule.table
    lane = int(table.lane[move.source])
    source, target = (row - int(table.lane_start[lane]) for row in move)
    lanes: list[tuple[int, str, list[Op]]] = list(table.lanes())
    lanes[lane][2].insert(target, lanes[lane][2].pop(source))
    return Schedule.from_lanes(
        schedule.name,
        schedule.shape,
        lanes,
        pairs=schedule.pairs,
        loans=schedule.loans,
        gangs=schedule.gangs,
        after=schedule.after,
    )


def _runs(schedule: Schedule) -> bool:
    """Whether every lane comes to its end."""
    graph_of(schedule)
    return not play_schedule(schedule, np.zeros(len(schedule.table), np.int64)).stuck(schedule)
