"""Copies to the host that follow from the turns of compute lanes, as columns.

A search over layouts offloads hundreds of schedules. Where each op takes one turn of its lane, the
windows of copies are a few comparisons of whole numbers, so they are made for all ops at once, in
the order that `add_copies` (transform/offload.py) gives the same windows op by op.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.holds import Holds
from penstock.core.schedule import Schedule
from penstock.core.table import CODE, Table
from penstock.transform._blocks import item_numbers

_Numbers = NDArray[np.int64]


class CopyTurns(NamedTuple):
    """Activations that are moved, in the order of the ops that need them back."""

    forward: _Numbers
    """Row of the op that writes each."""
    away: _Numbers
    """The turn of its lane from which on it may leave."""
    back: _Numbers
    """The turn in which it starts to come back."""

    def of_stages(self, schedule: Schedule, stages: Collection[int]) -> "CopyTurns":
        """Those of some stages."""
        chosen = np.zeros(schedule.shape.stages, np.bool_)
        chosen[[*stages]] = True
        moved = chosen[schedule.table.stage[self.forward]]
        return CopyTurns(*(column[moved] for column in self))


def copy_turns(schedule: Schedule, lead: int) -> CopyTurns:
    """The activations that stay away long enough for two copies of `lead` turns each."""
    return schedule.derive(
        f"copies with the time of {lead} ops", lambda found: _long_enough(found, lead)
    )


def _long_enough(schedule: Schedule, lead: int) -> CopyTurns:
    table, turn = schedule.table, item_numbers(schedule).astype(np.int64)
    place = table.stage.astype(np.int64) * schedule.shape.units + schedule.unit
    computing = np.array([stream == "compute" for stream in table.lane_stream])[table.lane]
    forward, backward = (np.flatnonzero(table.of_kinds(kinds) & computing) for kinds in ("F", "BI"))
    writer = np.full(int(place.max()) + 1, -1)
    writer[place[forward]] = forward
    written = writer[place[backward]]
    away, needed = turn[written] + 1, turn[backward]
    moved = (written >= 0) & (needed - away >= 2 * lead)
    return CopyTurns(written[moved], away[moved], needed[moved] - lead)


class CopyLanes(NamedTuple):
    """The copies of all devices, lane after lane, each in the order of its windows."""

    table: Table
    start: _Numbers
    """The turn in which each copy may start."""
    lead: int
    """Turns that it has."""

    @classmethod
    def of(cls, schedule: Schedule, turns: CopyTurns, lead: int) -> "CopyLanes":
        """At one time memory is given back before it is taken."""
        table, count = schedule.table, len(turns.forward)
        rows = np.concatenate([turns.forward, turns.forward])
        start = np.concatenate([turns.away, turns.back])
        load, device = np.repeat([False, True], count), table.device[rows]
        columns = (table.stage[rows], table.slice[rows], table.mb[rows], load, start, device)
        order = np.lexsort(columns)
        stage, slice, mb, load, start, device = (column[order] for column in columns)
        devices, first = np.unique(device, return_index=True)
        kind = np.where(load, CODE["L"], CODE["O"]).astype(np.uint8)
        ends = np.append(first, 2 * count).astype(np.int32)
        streams = ("copy",) * len(devices)
        return cls(Table(kind, stage, mb, slice, ends, devices, streams), start, lead)

    def holds(self, schedule: Schedule, taking: Collection[str]) -> Holds:
        """What loads wait for, and ops of kinds that take memory."""
        lanes = schedule.table.lanes_of("compute")
        lanes = lanes[np.searchsorted(schedule.table.lane_device[lanes], self.table.lane_device)]
        loads = self._loads(schedule, lanes)
        return loads.followed_by(self._takers(schedule, lanes, taking))

    def _loads(self, schedule: Schedule, lanes: _Numbers) -> Holds:
        """Hold each load back until what ended before its window has ended."""
        table, loads = schedule.table, np.flatnonzero(self._loading)
        lane, room = lanes[self.table.lane[loads]], self._room(schedule)
        turns = room * table.lane.astype(np.int64) + item_numbers(schedule)
        ended = np.searchsorted(turns, room * lane + self.start[loads])
        held = np.append(0, np.maximum.accumulate(ended)[:-1])
        behind = ended > np.maximum(held, table.lane_start[lane])
        earlier = table.columns_at(ended[behind] - 1)
        return Holds(self.table.columns_at(loads[behind]), earlier)

    def _takers(self, schedule: Schedule, lanes: _Numbers, taking: Collection[str]) -> Holds:
        """Hold ops that take memory back until the offloads that ended before them have ended."""
        table, copies, room = schedule.table, self.table, self._room(schedule)
        beside = np.full(len(table.lane_stream), -1, np.int64)
        beside[lanes] = np.arange(len(lanes))
        own = beside[table.lane]
        rows = np.flatnonzero(table.of_kinds(taking) & (own >= 0))
        own = own[rows]
        numbers = np.where(self._loading, -1, np.arange(len(copies)))
        last_out = np.append(-1, np.maximum.accumulate(numbers))
        ends = room * copies.lane.astype(np.int64) + self.start + self.lead
        turns = room * own + item_numbers(schedule)[rows]
        last = last_out[np.searchsorted(ends, turns, side="right")]
        last[last < copies.lane_start[own]] = -1  # that one is of another lane
        new = np.diff(last, prepend=-1) > 0
        return Holds(table.columns_at(rows[new]), copies.columns_at(last[new]))

    def _room(self, schedule: Schedule) -> int:
        """More turns than any lane has, so that those of one lane are in front of all of the next
        one where lanes are this far apart."""
        last = int(self.start.max()) + self.lead
        return 1 + max(last, int(item_numbers(schedule).max()))

    @property
    def _loading(self) -> NDArray[np.bool_]:
        return np.asarray(self.table.kind == CODE["L"])
