"""Copies to the host that follow from the turns of compute lanes, as columns.

A search over layouts offloads hundreds of schedules. Where each op takes one turn of its lane, the
windows of copies are a few comparisons of whole numbers, so they are made for all ops at once, in
the order that `add_copies` (transform/offload.py) gives the same windows op by op.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.ops import Op
from penstock.core.schedule import After, Schedule
from penstock.core.table import CODE, Table
from penstock.transform._blocks import item_numbers

_Numbers = NDArray[np.int64]
_AFTER_OF: Callable[[tuple[Op, Op]], After] = partial(tuple.__new__, After)


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
        chosen = np.isin(schedule.table.stage[self.forward], [*stages])
        return CopyTurns(*(column[chosen] for column in self))


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

    def holds(self, schedule: Schedule, taking: Collection[str]) -> tuple[After, ...]:
        """What loads wait for, and ops of kinds that take memory."""
        takes = schedule.table.of_kinds(taking)
        lanes = [self._lane(schedule, number) for number in range(len(self.table.lane_device))]
        loads = [each for own, lane in lanes for each in self._loads(schedule, own, lane)]
        takers = [each for own, lane in lanes for each in self._takers(schedule, own, lane, takes)]
        return (*loads, *takers)

    def _lane(self, schedule: Schedule, number: int) -> tuple[range, range]:
        """The copies of a device, and the rows of its compute lane."""
        table, at = schedule.table, (self.table.lane_device[number], "compute")
        lane = [*zip(table.lane_device.tolist(), table.lane_stream)].index(at)
        own = range(*self.table.lane_start[number : number + 2].tolist())
        return own, range(*table.lane_start[lane : lane + 2].tolist())

    def _loads(self, schedule: Schedule, own: range, lane: range) -> Iterable[After]:
        """Hold each load back until what ended before its window has ended."""
        loads = own.start + np.flatnonzero(self._loading(own))
        turns = item_numbers(schedule)[lane.start : lane.stop]
        ended = np.searchsorted(turns, self.start[loads])
        held = np.maximum.accumulate(np.append(0, ended))[:-1]
        behind = ended > held
        earlier = schedule.table.ops_at(lane.start + ended[behind] - 1)
        return _after(self.table.ops_at(loads[behind]), earlier)

    def _takers(
        self, schedule: Schedule, own: range, lane: range, takes: NDArray[np.bool_]
    ) -> Iterable[After]:
        """Hold ops that take memory back until the offloads that ended before them have ended."""
        rows = lane.start + np.flatnonzero(takes[lane.start : lane.stop])
        numbers = np.where(self._loading(own), -1, np.arange(len(own)))
        last_out = np.append(-1, np.maximum.accumulate(numbers))
        ends = self.start[own.start : own.stop] + self.lead
        last = last_out[np.searchsorted(ends, item_numbers(schedule)[rows], side="right")]
        new = np.diff(last, prepend=-1) > 0
        return _after(schedule.table.ops_at(rows[new]), self.table.ops_at(own.start + last[new]))

    def _loading(self, own: range) -> NDArray[np.bool_]:
        return np.asarray(self.table.kind[own.start : own.stop] == CODE["L"])


def _after(ops: Iterable[Op], earlier: Iterable[Op]) -> Iterable[After]:
    return map(_AFTER_OF, zip(ops, earlier))
