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

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from sys import maxsize
from typing import NamedTuple

import numpy as np

from penstock.core.meaning import MEANING, kinds_writing
from penstock.core.ops import SHARD_KINDS, Op, home_number
from penstock.core.schedule import After, Schedule
from penstock.core.shape import Shape
from penstock.core.table import Ints
from penstock.errors import ShapeError
from penstock.transform._blocks import ItemLanes, item_lanes, unique, with_items

USING = frozenset(
    k for k, entry in MEANING.items() if any(r.buffer == "weight" for r in entry.reads)
)
"""Kinds that need the whole weights of their stage."""
ADDING = kinds_writing("dw")
"""Kinds that add to the weight gradient of their stage."""


class Use(NamedTuple):
    """An op that needs a buffer."""

    place: int
    """In the lane."""
    item: int
    """The number of the op or pair; the strands of a pair need their buffers at once."""
    stage: int


NO_PLACE = maxsize
"""The place of what never comes."""


class Buffers(NamedTuple):
    """What a rule may look at: for each buffer, when its stage was used last and is used next."""

    last: Sequence[int]
    next_use: Callable[[], Sequence[int]]
    """Looked up when it is asked for: most rules do not."""


BufferRule = Callable[[int, Buffers], int]
"""The buffer for a stage, given as its place among the stages of the device."""


def by_number(place: int, buffers: Buffers) -> int:
    """Stage number i of a device always has buffer i modulo their number."""
    return place % len(buffers.last)


def least_recent(place: int, buffers: Buffers) -> int:
    """The buffer that has not been used for the longest time."""
    return min(range(len(buffers.last)), key=buffers.last.__getitem__)


def farthest(place: int, buffers: Buffers) -> int:
    """The buffer whose stage is not needed for the longest time: no rule gathers less."""
    following = buffers.next_use()
    return max(range(len(following)), key=following.__getitem__)


@dataclass
class _Stay:
    """A stage in a buffer, from the first op that uses it there to the last."""

    stage: int
    ordinal: int
    first: int
    last: int
    """Places of these ops in the lane."""
    freed: int
    """Place of the last op that used the buffer before; -1 where there was none."""
    item: int = -1
    """The last op or pair that used it."""
    then: int = -1
    """Place of the first op that uses the buffer for another stage; -1 where there is none."""


def _stays(uses: Sequence[Use], count: int, rule: BufferRule) -> list[_Stay]:
    """Who is in the buffers, in the order of the first ops."""
    places: dict[int, list[int]] = {}
    for place, _, stage in uses:
        places.setdefault(stage, []).append(place)
    numbers = {stage: number for number, stage in enumerate(sorted(places))}
    held: list[_Stay | None] = [None] * count
    there: dict[int, _Stay] = {}
    stays: list[_Stay] = []
    ordinals: Counter[int] = Counter()
    for use in uses:
        place, item, stage = use
        stay = there.get(stage)
        if stay is None:
            last = [each.last if each else -1 for each in held]
            buffer = rule(numbers[stage], Buffers(last, partial(_following, held, places, use)))
            stay = _Stay(stage, ordinals[stage], place, place, last[buffer])
            leaving, held[buffer], there[stage] = held[buffer], stay, stay
            if leaving:
                _refuse_both(leaving, use)
                leaving.then = place
                del there[leaving.stage]
            ordinals[stage] += 1
            stays.append(stay)
        stay.last, stay.item = place, item
    return stays


def _refuse_both(leaving: _Stay, use: Use) -> None:
    """Refuse one buffer for the two strands of a pair."""
    if leaving.item == use.item:
        raise ShapeError(
            f"a pair needs stages {leaving.stage} and {use.stage} at once, in the same buffer",
            hint="give at least 2 buffers",
        )


def _following(held: Sequence[_Stay | None], places: dict[int, list[int]], use: Use) -> list[int]:
    """When the stage of each buffer is needed next."""
    return [_next_use(places[each.stage], use, each) if each else NO_PLACE for each in held]


def _next_use(places: list[int], use: Use, there: _Stay) -> int:
    """When a stage is needed next: now, if it is by the other strand of the same pair."""
    at = bisect_right(places, use.place)
    behind = places[at] if at < len(places) else NO_PLACE
    return use.place if there.item == use.item else behind


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
    lanes, holds = item_lanes(schedule), list(schedule.after)
    added: ItemLanes = []
    for device, stream, items in lanes:
        if stream == "compute":
            ops = list(chain(*items))
            of_stages, of_shard = _heavy(schedule.shape, items)
            launches = sorted(
                [
                    *_launches(of_stages, weights, gradients, rule),
                    *_launches(of_shard, min(weights, 1), 1, rule),
                ]
            )
            if launches:
                added.append((device, "collective", [(launch.op,) for launch in launches]))
            holds += chain(*(_holds(ops, launch) for launch in launches))
    name = f"{schedule.name}+shard"
    return with_items(schedule.renamed(name), [*lanes, *added], after=unique(holds))


class Placed(NamedTuple):
    """An op that has to do with weights."""

    place: int
    """In the lane."""
    item: int
    """The number of its item."""
    op: Op
    home: int
    """The number of its stage, or of its shard behind those of all stages."""


def _heavy(
    shape: Shape, items: Sequence[Sequence[Op]]
) -> tuple[Sequence[Placed], Sequence[Placed]]:
    """The ops of stages that have weights, and those of the device's vocabulary shard. A shard is
    used all through the step, so it has buffers of its own and never leaves them."""
    placed = [
        Placed(place, number, op, home_number(op, shape.stages))
        for place, (number, op) in enumerate(_numbered(items))
    ]
    of_stages = [each for each in placed if each.home not in shape.weightless]
    return (
        [each for each in of_stages if each.home < shape.stages],
        [each for each in of_stages if each.home >= shape.stages],
    )


def _numbered(items: Sequence[Sequence[Op]]) -> Iterator[tuple[int, Op]]:
    return ((number, op) for number, item in enumerate(items) for op in item)


def _launches(
    ops: Sequence[Placed], weights: int, gradients: int, rule: BufferRule
) -> Iterator[_Launch]:
    """Gathers and reductions of one device, for ops that have to do with weights."""
    if weights:
        for stay in _stays(_uses(ops, USING), weights, rule):
            yield _Launch(stay.freed, Op("G", stay.stage, stay.ordinal), stay.first)
    for stay in _stays(_uses(ops, ADDING), gradients, rule):
        yield _Launch(stay.last, Op("Z", stay.stage, stay.ordinal), stay.then)


def _uses(ops: Sequence[Placed], kinds: frozenset[str]) -> list[Use]:
    return [Use(each.place, each.item, each.home) for each in ops if each.op.kind in kinds]


def _holds(ops: Sequence[Op], launch: _Launch) -> Iterator[After]:
    if launch.behind >= 0:
        yield After(launch.op, ops[launch.behind])
    if launch.waiting >= 0:
        yield After(ops[launch.waiting], launch.op)
