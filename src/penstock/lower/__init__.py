"""From a proven schedule to a program: sends, receives into planned slots, and frees.

Sends come right after the op that writes, receives are posted as soon as their slot is free, frees
follow the last use. On every channel the order is that of the sender, on both ends.
"""

from collections.abc import Mapping

import numpy as np

from penstock.check import require
from penstock.core.lifetimes import uses_of
from penstock.core.program import Attached, Channel, Program
from penstock.core.rules import NAMES, buffer_bases
from penstock.core.schedule import Schedule
from penstock.core.table import Ints
from penstock.core.transfers import Moves, moves_of
from penstock.lower.slots import Plan, plan_slots

__all__ = ["lower", "needed_slots"]


def lower(schedule: Schedule, slots: Mapping[Channel, int] | None = None) -> Program:
    """The program of a schedule; `slots` asks for more receive slots than are needed."""
    require(schedule)
    moves = moves_of(schedule)
    plan = plan_slots(schedule, moves, slots)
    return Program(
        schedule=schedule,
        channels=plan.channels,
        slots=tuple(int(count) for count in plan.slots),
        moves=moves,
        channel=plan.channel,
        slot=plan.slot,
        posts=_posts(schedule, plan),
        frees=_frees(schedule, moves),
        bufs=buffer_bases(schedule.shape, schedule.table.kinds),
    )


def needed_slots(schedule: Schedule) -> dict[Channel, int]:
    """Fewest receive slots of each channel with which a schedule does not deadlock."""
    require(schedule)
    plan = plan_slots(schedule, moves_of(schedule))
    return dict(zip(plan.channels, (int(count) for count in plan.needed)))


def _posts(schedule: Schedule, plan: Plan) -> Attached:
    """Receives by the row they follow; those that wait for nothing stand behind the last row."""
    size = len(schedule.table)
    follows = np.where(plan.posted_after < 0, size, plan.posted_after)
    return _attach(follows.astype(np.int32), np.arange(len(follows), dtype=np.int32), size + 1)


def _frees(schedule: Schedule, moves: Moves) -> Attached:
    """Buffers by the row of their last use; what is only written to be sent, its send frees."""
    writers, last = uses_of(schedule)
    alive = np.flatnonzero(last >= 0).astype(np.int32)
    bases = buffer_bases(schedule.shape, schedule.table.kinds)
    name = np.repeat([NAMES.index(name) for name in bases], [room for _, room in bases.values()])
    sent = np.zeros((len(schedule.table), len(NAMES)), np.bool_)
    sent[moves.writer, moves.buffer] = True
    writer = writers[alive]
    kept = (last[alive] != writer) | ~sent[writer, name[alive]]
    return _attach(last[alive[kept]], alive[kept], len(schedule.table))


def _attach(rows: Ints, items: Ints, size: int) -> Attached:
    """Items grouped by row, in their own order within a row."""
    order = np.argsort(rows, kind="stable")
    start = np.searchsorted(rows[order], np.arange(size + 1)).astype(np.int32)
    return Attached(start, items[order])
