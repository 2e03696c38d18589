"""Cut embedding and output layer into a shard for each device, on any schedule.

The output layer makes the last device the slowest and the fullest. With a shard of the vocabulary
on each device it becomes passes that all of them run: E before the first forward of a unit, S and T
at its turn from forward to backward, D after its last backward. On every device they stand where
these moments are if every op takes one tick, so that nothing waits for a pass that comes later.

    1f1b, p = 2, m = 2              with passes, the second starting the backward
    device 0  F0 F1 B0 B1           E0 F0 E1 F1 S0 T0 B0 D0 S1 T1 B1 D1
    device 1  F0 B0 F1 B1           E0 E1 F0 S0 T0 B0 F1 D0 S1 T1 B1 D1

A turn waits for all devices, and the schedule leaves no time for that: orders that do are
schedules of their own. Source of the passes: arXiv:2411.05288.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from penstock.core.ops import SHARD_KINDS, STAGE_KINDS, STREAMS
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import play_schedule
from penstock.core.table import CODE, Ints, OpColumns, Table, Ticks
from penstock.errors import ShapeError
from penstock.transform._blocks import LaneItem, item_lanes, refuse_strangers

_KINDS = ("D", "E", "ST")
"""Passes that stand together. At one moment an embedding's backward is in front."""


class Passes(NamedTuple):
    """Columns of the passes that all devices run, in the order in which they do."""

    moment: Ticks
    """They run before what starts then."""
    kinds: Ticks
    """Place in `_KINDS`."""
    mb: Ticks
    slice: Ticks

    def on(self, devices: Ints) -> OpColumns:
        """Those of some devices, one device after the other."""
        letters = "".join(_KINDS[number] for number in self.kinds.tolist())
        kind = np.array([*map(CODE.__getitem__, letters)], np.uint8)
        mb, slice = (self.by_op(column).astype(np.int32) for column in (self.mb, self.slice))
        stage = np.repeat(devices, len(kind))
        count = len(devices)
        return OpColumns(np.tile(kind, count), stage, np.tile(mb, count), np.tile(slice, count))

    def by_op(self, column: Ticks) -> Ticks:
        """A column with a place for each op."""
        return np.repeat(column, np.array([*map(len, _KINDS)])[self.kinds])


def spread_vocabulary(schedule: Schedule, *, loss: str = "T") -> Schedule:
    """The schedule with passes; `loss` is T where the second pass of all shards starts the
    backward, and S where the first one does, which then does more of the work."""
    _refuse(schedule)
    refuse_strangers(schedule)
    shape = replace(schedule.shape, embed="E", loss=loss)
    passes, place = _passes(schedule)
    table, lanes = schedule.table, schedule.table.lanes_of("compute")
    devices = table.lane_device[lanes]
    own, more = passes.by_op(2 * np.arange(len(passes.kinds)) + 1), passes.on(devices)
    order = np.argsort(np.concatenate([place, np.tile(own, len(devices))]), kind="stable")
    stream = np.full(len(more.kind), STREAMS.index("compute"), np.int32)
    of_device = np.concatenate([table.device, more.stage])
    return replace(
        schedule.renamed(f"{schedule.name}+vocabulary"),
        shape=shape,
        table=Table.of_columns(
            table.columns.followed_by(more).at(order),
            of_device[order],
            np.concatenate([table.stream, stream])[order],
        ),
        pairs=_pairs(schedule),
    )


def _pairs(schedule: Schedule) -> tuple[LaneItem, ...]:
    """The pairs, as they stand in the lanes."""
    lanes = item_lanes(schedule) if schedule.pairs else []
    return tuple(item for _, _, items in lanes for item in items if len(item) > 1)


def _refuse(schedule: Schedule) -> None:
    kinds = schedule.table.kinds
    if found := sorted(kinds & (SHARD_KINDS | STAGE_KINDS)):
        raise ShapeError(
            f"{schedule.name} has ops of kind {', '.join(found)}, so its vocabulary cannot be "
            "spread any more",
            hint="spread the vocabulary of a schedule without passes, gathers and updates",
        )


def _passes(schedule: Schedule) -> tuple[Passes, Ticks]:
    """The passes of each unit, and between which of them each op of the schedule stands: an op
    behind n passes has the place 2n, the pass behind them 2n + 1."""
    table = schedule.table
    run = play_schedule(schedule, np.ones(len(table), np.int64))
    first, last = table.stage == 0, table.stage == schedule.shape.stages - 1
    forward, backward = table.of_kinds("FN"), table.of_kinds("BI")
    moments = ((run.end, backward & first), (run.start, forward & first), (run.end, forward & last))
    found = [
        np.stack([moment[rows], np.full(rows.sum(), kinds), table.mb[rows], table.slice[rows]])
        for kinds, (moment, rows) in enumerate(moments)
    ]
    every = np.concatenate(found, axis=1)
    every = every[:, np.lexsort(every[::-1])]
    differs = (np.diff(every, axis=1, prepend=-1) != 0).any(axis=0)
    passes = Passes(*every[:, differs])  # a gang is in many lanes
    behind = np.searchsorted(passes.moment, run.start, side="right")
    room = table.lane * np.int64(len(passes.moment) + 1)  # lanes that are stuck keep their order
    behind = np.maximum.accumulate(room + behind) - room
    return passes, 2 * behind
