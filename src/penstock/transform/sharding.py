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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from penstock.core.ops import SHARD_KINDS, Op
from penstock.core.schedule import After, Schedule
from penstock.core.table import Ints, PlainLane
from penstock.errors import ShapeError
from penstock.transform._blocks import unique
from penstock.transform.buffer_stays import (
    ADDING,
    BufferRule,
    LaneStays,
    by_number,
    stays_in_buffers,
)


def fewest_for_one_reduction(schedule: Schedule) -> int:
    """With how many buffers for gradients, two or more, every stage is reduced once, where the
    buffer is taken that has not been used for the longest time.

    Then a stage finds its buffer again if fewer others than there are buffers were used since.
    """
    table, most = schedule.table, 2
    chosen = table.of_kinds(ADDING - SHARD_KINDS)
    chosen &= ~np.isin(table.stage, [*schedule.shape.weightless])
    for lane, stream in enumerate(table.lane_stream):
        if stream == "compute":
            rows = slice(*table.lane_start[lane : lane + 2].tolist())
            most = max(most, _most_between(table.stage[rows][chosen[rows]]))
    return most


def _most_between(stages: Ints) -> int:
    """How many different stages there are at most from one use of a stage to the next."""
    recent: list[int] = []
    most = 0
    for stage in stages[np.flatnonzero(np.diff(stages, prepend=-1))].tolist():
        if stage in recent:
            at = recent.index(stage)
            most = max(most, at + 1)
            del recent[at]
        recent.insert(0, stage)
    return most


_AFTER_OF: Callable[[tuple[Op, Op]], After] = partial(tuple.__new__, After)
"""Without a call of Python: there are as many as ops."""


class _Launch(NamedTuple):
    """A collective op, the place in the lane behind which it may start, and who waits for it."""

    behind: int
    op: Op
    waiting: int
    """Place in the lane; -1 where nobody waits."""


def shard(
    schedule: Schedule, *, weights: int, gradients: int, rule: BufferRule = by_number
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


def add_collectives(schedule: Schedule, stays: Sequence[LaneStays]) -> Schedule:
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
    table, holds, added = schedule.table, list(schedule.after), list[PlainLane]()
    for of_lane in stays:
        launches = sorted(_launches(of_lane))
        if launches:
            ops = [launch.op for launch in launches]
            added.append((int(table.lane_device[of_lane.lane]), "collective", ops))
        holds += _holds(schedule, int(table.lane_start[of_lane.lane]), launches)
    whole = schedule.renamed(f"{schedule.name}+shard")
    return replace(
        whole, table=table.appended(added) if added else table, after=unique(holds), derived={}
    )


def _launches(stays: LaneStays) -> Iterator[_Launch]:
    """Gathers and reductions of one device."""
    for stay in chain(*stays.weights):
        yield _Launch(stay.freed, Op("G", stay.stage, stay.ordinal), stay.first)
    for stay in chain(*stays.gradients):
        yield _Launch(stay.last, Op("Z", stay.stage, stay.ordinal), stay.then)


def _holds(schedule: Schedule, start: int, launches: Sequence[_Launch]) -> Iterator[After]:
    """What launches wait for in the lane that begins at a row, and who waits for them."""
    places = [place for each in launches for place in (each.behind, each.waiting) if place >= 0]
    ops = dict(zip(places, schedule.table.ops_at([start + place for place in places])))
    for behind, op, waiting in launches:
        if behind >= 0:
            yield _AFTER_OF((op, ops[behind]))
        if waiting >= 0:
            yield _AFTER_OF((ops[waiting], op))
