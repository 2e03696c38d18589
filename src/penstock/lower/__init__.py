"""From a proven schedule to a program: sends, receives into planned slots, collectives, and frees.

Sends come right after the op that writes, receives are posted as soon as their slot is free, frees
follow the last use. On every channel the order is that of the sender, on both ends. A device joins
a collective when it has written its parts, and after all that come before in the order of all.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.check import require
from penstock.core.buffers import COLLECTIVE
from penstock.core.collectives import Collectives, collectives_of
from penstock.core.host_order import host_order, unit_ends
from penstock.core.kernel import kernel
from penstock.core.lifetimes import uses_of
from penstock.core.program import Attached, Channel, Program
from penstock.core.rules import NAMES, buffer_bases
from penstock.core.schedule import Schedule
from penstock.core.table import Ints
from penstock.core.transfers import Moves, moves_of
from penstock.lower.slots import Plan, needs_of_channels, plan_slots

__all__ = ["lower", "lower_for_running", "needed_slots", "slots_for_running"]


def lower(schedule: Schedule, slots: Mapping[Channel, int] | None = None) -> Program:
    """The program of a schedule; `slots` asks for more receive slots than are needed."""
    require(schedule)
    moves = moves_of(schedule)
    plan = plan_slots(schedule, moves, slots)
    collectives = collectives_of(schedule)
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
        collectives=collectives,
        joins=_joins(schedule, collectives),
    )


def lower_for_running(schedule: Schedule) -> Program:
    """The program with one slot more on each channel than it needs: while one transfer is read,
    the next one can travel."""
    return lower(schedule, slots_for_running(schedule))


def slots_for_running(schedule: Schedule) -> dict[Channel, int]:
    """Receive slots of each channel of that program."""
    return {channel: slots + 1 for channel, slots in needed_slots(schedule).items()}


def needed_slots(schedule: Schedule) -> dict[Channel, int]:
    """Fewest receive slots of each channel with which a schedule does not deadlock."""
    require(schedule)
    needs = needs_of_channels(schedule, moves_of(schedule))
    return dict(zip(needs.channels, needs.needed.tolist()))


def _posts(schedule: Schedule, plan: Plan) -> Attached:
    """Receives by the row they follow; those that wait for nothing stand behind the last row."""
    size = len(schedule.table)
    follows = np.where(plan.posted_after < 0, size, plan.posted_after)
    return _attach(follows.astype(np.int32), np.arange(len(follows), dtype=np.int32), size + 1)


def _joins(schedule: Schedule, collectives: Collectives) -> Attached:
    """Collectives by the row after which a device joins them, in the order of all.

    A stage's part of a sum may be there long before those of others. Its stream does what it can do
    until then, as gathers that others wait for before they have their parts.
    """
    ends = unit_ends(schedule)
    joined, after = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    of_part = np.repeat(np.arange(len(collectives)), np.diff(collectives.start))
    on = schedule.table.device[collectives.rows]
    for device in np.unique(on).tolist():
        order, place = host_order(schedule, device), np.zeros(len(schedule.table), np.int64)
        place[order] = np.arange(len(order))
        here, last = np.flatnonzero(on == device), np.full(len(collectives), -1, np.int64)
        np.maximum.at(last, of_part[here], place[collectives.rows[here]])
        joined.append(np.flatnonzero(last >= 0))
        for at in joined[-1][collectives.unit[joined[-1]] < 0]:
            complete = ends[collectives.parts(int(at))].max()
            last[at] = place[_last_ended(schedule, int(order[last[at]]), int(complete))]
        after.append(order[np.maximum.accumulate(last[joined[-1]])])
    rows, items = (np.concatenate(found).astype(np.int32) for found in (after, joined))
    return _attach(rows, items, len(schedule.table))


def _last_ended(schedule: Schedule, row: int, complete: int) -> int:
    """The last row of a row's lane that has ended at a time, if every op took one tick."""
    table, ends = schedule.table, unit_ends(schedule)
    first, stop = table.lane_start[table.lane[row] :][:2]
    return int(first + np.searchsorted(ends[first:stop], complete, side="right") - 1)


def _frees(schedule: Schedule, moves: Moves) -> Attached:
    """Buffers by the row of their last use; what is only written to be sent, its send frees, and
    parts of a collective, the collective."""
    written, last = uses_of(schedule)
    sent = np.zeros((len(NAMES), len(schedule.table)), np.bool_)
    sent[moves.buffer, moves.writer] = True
    found = []
    for name, (base, room) in buffer_bases(schedule.shape, schedule.table.kinds).items():
        if name in COLLECTIVE:
            continue
        used, by = last[base : base + room], written[base : base + room]
        alive = np.flatnonzero(used >= 0)
        only_sent = sent[NAMES.index(name), by[alive]] & (used[alive] == by[alive])
        found.append(base + alive[~only_sent])
    items = np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int32)
    return _attach(last[items], items, len(schedule.table))


def _attach(rows: Ints, items: Ints, size: int) -> Attached:
    """Items grouped by row, in their own order within a row."""
    start, sorted_items = np.zeros(size + 1, np.int32), np.empty(len(items), np.int32)
    _bucket(size, rows, items, start, sorted_items)
    return Attached(start, sorted_items)


@kernel
def _bucket(rows: Any, items: Any, start: Any, sorted_items: Any) -> None:
    """Counting sort of items by row."""
    for row in rows:
        start[row + 1] += 1
    for row in range(len(start) - 1):
        start[row + 1] += start[row]
    fill = start[:-1].copy()
    for place in range(len(rows)):
        sorted_items[fill[rows[place]]] = items[place]
        fill[rows[place]] += 1
