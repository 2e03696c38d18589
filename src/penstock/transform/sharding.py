"""Gather weights before they are used and reduce gradients when they are complete.

With fully sharded data parallelism a device holds only its shard of each stage's weights, and a few
buffers into which whole stages are gathered. Which stages it has to gather, how often and when
follows from the order of its ops: a gather `G` may start once the last op that used the buffer it
overwrites has ended, and the next op of its stage waits for it. A reduction `Z` starts after the
last gradient that its buffer takes before another stage needs the buffer, or at all.

    breadth-first, p = 1, v = 2, m = 2       one buffer
    device 0  F0 F1 f0 f1 b0 b1 B0 B1        collective  G0 g0 G1 z0 Z0

Both run on the collective lane of their device, in the order in which they may start, gathers in
front, because somebody waits for them. An ordinal stands in place of the microbatch.
Source: arXiv:2211.05953, and the author's later implementation.
"""

from typing import Any, NamedTuple

import numpy as np

from penstock.core.holds import Holds, held_too
from penstock.core.kernel import kernel
from penstock.core.ops import SHARD_KINDS
from penstock.core.schedule import Schedule
from penstock.core.table import CODE, OpColumns, Table, Ticks
from penstock.errors import ShapeError
from penstock.transform.buffer_stays import (
    ADDING,
    BY_NUMBER,
    BufferRule,
    BufferStays,
    stays_in_buffers,
)


def fewest_for_one_reduction(schedule: Schedule) -> int:
    """With how many buffers for gradients, two or more, every stage is reduced once, where the
    buffer is taken that has not been used for the longest time.

    Then a stage finds its buffer again if fewer others than there are buffers were used since.
    """
    table, weightless = schedule.table, schedule.shape.weightless
    chosen = table.of_kinds(ADDING - SHARD_KINDS)
    if weightless:
        chosen &= ~np.isin(table.stage, [*weightless])
    columns = (table.lane_start, table.lanes_of("compute"), table.stage, chosen)
    return max(2, int(_most_between(len(table), *columns, int(table.stage.max()) + 1)))


@kernel
def _most_between(lane_start: Any, lanes: Any, stage: Any, chosen: Any, stages: Any) -> int:
    """How many different stages there are at most from one use of a stage to the next."""
    most = 0
    for lane in lanes:
        used, before = np.full(stages, -1, np.int64), -1
        for row in range(lane_start[lane], lane_start[lane + 1]):
            here = stage[row]
            if chosen[row] and here != before:
                if used[here] >= 0:
                    most = max(most, int((used > used[here]).sum()) + 1)
                before = here
            if chosen[row]:
                used[here] = row
    return most


def shard(
    schedule: Schedule, *, weights: int, gradients: int, rule: BufferRule = BY_NUMBER
) -> Schedule:
    """The schedule with its gathers and reductions, for so many buffers on each device.

    0 buffers for weights stand for weights that are not sharded: nothing is gathered, and the
    gradients are still reduced.
    """
    if weights < 0 or gradients < 1:
        raise ShapeError(
            f"{weights} buffers for weights and {gradients} for gradients cannot be shared",
            hint="give 0 or more for weights and 1 or more for gradients",
        )
    return add_collectives(
        schedule, stays_in_buffers(schedule, weights=weights, gradients=gradients, rule=rule)
    )


def add_collectives(schedule: Schedule, stays: BufferStays) -> Schedule:
    """The schedule with a gather for each stay in a buffer of weights, and with a reduction for
    each in one of gradients."""
    if "collective" in schedule.table.lane_stream:
        raise ShapeError(
            f"{schedule.name} has collective lanes already", hint="shard a schedule only once"
        )
    if schedule.gangs:
        raise ShapeError(
            f"{schedule.name} has gangs, as {schedule.gangs[0]}: weights are gathered in the lane "
            "of an op, and this one has several",
            hint="shard a schedule whose ops are in one lane each",
        )
    table, launches = schedule.table, _launches(stays)
    added = _lanes(table, launches)
    return schedule.with_table(
        table.followed_by(added) if len(added) else table,
        name=f"{schedule.name}+shard",
        after=held_too(schedule.after, _holds(table, added, launches)),
    )


class _Launches(NamedTuple):
    """Columns of collective ops, lane after lane, in the order in which they may start."""

    lane: Ticks
    """The compute lane whose stages they serve."""
    behind: Ticks
    """The place in it behind which each may start; -1 where it may at once."""
    kind: Ticks
    """Code of the kind; gathers come first."""
    stage: Ticks
    ordinal: Ticks
    waiting: Ticks
    """The place in it of the op that waits; -1 where nobody does."""


def _launches(stays: BufferStays) -> _Launches:
    """Gathers and reductions of all devices."""
    gathers = [(x.lane, x.freed, x.stage, x.ordinal, x.first) for x in stays.weights]
    reductions = [(x.lane, x.last, x.stage, x.ordinal, x.then) for x in stays.gradients]
    parts = [*gathers, *reductions]
    lane, behind, stage, ordinal, waiting = (np.concatenate(each) for each in zip(*parts))
    counts = [sum(len(part[0]) for part in each) for each in (gathers, reductions)]
    kind = np.repeat([CODE["G"], CODE["Z"]], counts)
    order = np.lexsort((ordinal, stage, kind, behind, lane))
    columns = (lane, behind, kind, stage, ordinal, waiting)
    return _Launches(*(column[order] for column in columns))


def _lanes(table: Table, launches: _Launches) -> Table:
    """The collective lanes."""
    lanes, first = np.unique(launches.lane, return_index=True)
    return Table(
        launches.kind.astype(np.uint8),
        launches.stage.astype(np.int32),
        launches.ordinal.astype(np.int32),
        np.zeros(len(launches.lane), np.int32),
        np.append(first, len(launches.lane)).astype(np.int32),
        table.lane_device[lanes],
        ("collective",) * len(lanes),
    )


def _holds(table: Table, added: Table, launches: _Launches) -> Holds:
    """What launches wait for in their compute lane, and who waits for them there."""
    places = np.stack([launches.behind, launches.waiting], axis=1)
    launch, waits = np.nonzero(places >= 0)
    rows = table.lane_start[launches.lane[launch]] + places[launch, waits]
    both = [*zip(added.columns_at(launch), table.columns_at(rows))]
    ops = (np.where(waits, other, own) for own, other in both)
    earlier = (np.where(waits, own, other) for own, other in both)
    return Holds(OpColumns(*ops), OpColumns(*earlier))
