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

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from penstock.core.ops import SHARD_KINDS, STAGE_KINDS, Op
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import play_schedule
from penstock.core.table import Ticks
from penstock.errors import ShapeError
from penstock.transform._blocks import ItemLanes, LaneItem, item_lanes, with_items


class Passes(NamedTuple):
    """Passes of one unit that all devices run at a moment, before what starts then."""

    moment: int
    kinds: str
    mb: int
    slice: int

    def on(self, device: int) -> list[LaneItem]:
        return [(Op(kind, device, self.mb, self.slice),) for kind in self.kinds]


def spread_vocabulary(schedule: Schedule, *, loss: str = "T") -> Schedule:
    """The schedule with passes; `loss` is T where the second pass of all shards starts the
    backward, and S where the first one does, which then does more of the work."""
    _refuse(schedule)
    shape = replace(schedule.shape, embed="E", loss=loss)
    done = play_schedule(schedule, np.ones(len(schedule.table), np.int64))
    passes = sorted({*_passes(schedule, done.start, done.end)})  # a gang stands in several lanes
    row_of = {op: rows[0] for op, rows in schedule.table.rows_by_op.items()}
    starts = {op: int(done.start[row]) for op, row in row_of.items()}
    lanes: ItemLanes = [
        (device, stream, _merged(items, passes, device, starts) if stream == "compute" else items)
        for device, stream, items in item_lanes(schedule)
    ]
    return with_items(schedule.renamed(f"{schedule.name}+vocabulary"), lanes, shape=shape)


def _refuse(schedule: Schedule) -> None:
    kinds = schedule.table.kinds
    if found := sorted(kinds & (SHARD_KINDS | STAGE_KINDS)):
        raise ShapeError(
            f"{schedule.name} has ops of kind {', '.join(found)}, so its vocabulary cannot be "
            "spread any more",
            hint="spread the vocabulary of a schedule without passes, gathers and updates",
        )


def _passes(schedule: Schedule, start: Ticks, end: Ticks) -> Iterator[Passes]:
    """At what moments of the schedule each unit has its passes."""
    last = schedule.shape.stages - 1
    for row, (kind, stage, mb, slice) in enumerate(schedule.table.ops()):
        if kind in "FN" and stage == 0:
            yield Passes(int(start[row]), "E", mb, slice)
        if kind in "FN" and stage == last:
            yield Passes(int(end[row]), "ST", mb, slice)
        if kind in "BI" and stage == 0:
            yield Passes(int(end[row]), "D", mb, slice)


def _merged(
    items: list[LaneItem], passes: list[Passes], device: int, starts: dict[Op, int]
) -> list[LaneItem]:
    """The lane of a device with the passes in front of what starts at their moment."""
    found: list[LaneItem] = []
    left = iter([*passes, None])
    coming = next(left)
    for item in items:
        while coming is not None and coming.moment <= starts[item[0]]:
            found += coming.on(device)
            coming = next(left)
        found.append(item)
    while coming is not None:
        found += coming.on(device)
        coming = next(left)
    return found
