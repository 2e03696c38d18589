"""Which stages are in the few buffers of a device, from which op to which.

With sharded weights a device has buffers for some of its stages. Which stage takes the place of
which follows from the order of the ops that use them, and from a rule. A stay is one stage in one
buffer, from the first op that uses it there to the last.

    one buffer        F0 F1 f0 f1 b0 b1 B0 B1
    stays             0     1           0       stage 0 comes back
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from sys import maxsize
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.homes import home_column
from penstock.core.meaning import MEANING, kinds_writing
from penstock.core.schedule import Schedule
from penstock.core.table import Ints
from penstock.errors import ShapeError
from penstock.transform._blocks import item_numbers

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


_USE_OF: Callable[[tuple[int, int, int]], Use] = partial(tuple.__new__, Use)
"""Without a call of Python: whole lanes are made of them."""
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


@dataclass(slots=True)
class Stay:
    """A stage in a buffer, from the first op that uses it there to the last."""

    stage: int
    ordinal: int
    first: int
    last: int
    """Places of these ops in the lane."""
    freed: int
    """Place of the last op that used the buffer before; -1 where there was none."""
    buffer: int
    """The number of the buffer."""
    item: int = -1
    """The last op or pair that used it."""
    then: int = -1
    """Place of the first op that uses the buffer for another stage; -1 where there is none."""


def stays(uses: Sequence[Use], count: int, rule: BufferRule) -> list[Stay]:
    """Who is in so many buffers, in the order of the first ops; nobody without any."""
    if not count:
        return []
    places: dict[int, list[int]] = {}
    for place, _, stage in uses:
        places.setdefault(stage, []).append(place)
    numbers = {stage: number for number, stage in enumerate(sorted(places))}
    held: list[Stay | None] = [None] * count
    there: dict[int, Stay] = {}
    found: list[Stay] = []
    ordinals: Counter[int] = Counter()
    for use in uses:
        place, item, stage = use
        stay = there.get(stage)
        if stay is None:
            last = [each.last if each is not None else -1 for each in held]
            buffer = rule(numbers[stage], Buffers(last, partial(_following, held, places, use)))
            stay = Stay(stage, ordinals[stage], place, place, last[buffer], buffer)
            leaving, held[buffer], there[stage] = held[buffer], stay, stay
            if leaving:
                _refuse_both(leaving, use)
                leaving.then = place
                del there[leaving.stage]
            ordinals[stage] += 1
            found.append(stay)
        stay.last, stay.item = place, item
    return found


def _refuse_both(leaving: Stay, use: Use) -> None:
    """Refuse one buffer for the two strands of a pair."""
    if leaving.item == use.item:
        raise ShapeError(
            f"a pair needs stages {leaving.stage} and {use.stage} at once, in the same buffer",
            hint="give at least 2 buffers",
        )


def _following(held: Sequence[Stay | None], places: dict[int, list[int]], use: Use) -> list[int]:
    """When the stage of each buffer is needed next."""
    return [_next_use(places[each.stage], use, each) if each else NO_PLACE for each in held]


def _next_use(places: list[int], use: Use, there: Stay) -> int:
    """When a stage is needed next: now, if it is by the other strand of the same pair."""
    at = bisect_right(places, use.place)
    behind = places[at] if at < len(places) else NO_PLACE
    return use.place if there.item == use.item else behind


BufferUsers = tuple[frozenset[int], ...]
"""For each buffer the stages that it takes in turn."""


@dataclass(frozen=True)
class LaneStays:
    """Who is in the buffers of one device, of its stages and of its vocabulary shard apart: a shard
    is used all through the step, so it has buffers of its own and never leaves them."""

    lane: int
    weights: tuple[list[Stay], list[Stay]]
    gradients: tuple[list[Stay], list[Stay]]

    @property
    def users(self) -> tuple[BufferUsers, BufferUsers]:
        """The users of the buffers of weights, and of those of gradients."""
        return _users(self.weights), _users(self.gradients)


def stays_in_buffers(
    schedule: Schedule, *, weights: int, gradients: int, rule: BufferRule
) -> list[LaneStays]:
    """Of each compute lane, with so many buffers."""
    found, touching = [], [_touching(schedule, kinds) for kinds in (USING, ADDING)]
    for lane, stream in enumerate(schedule.table.lane_stream):
        if stream == "compute":
            using, adding = (_uses(schedule, lane, rows) for rows in touching)
            of_weights = (stays(using[0], weights, rule), stays(using[1], min(weights, 1), rule))
            of_gradients = (stays(adding[0], gradients, rule), stays(adding[1], 1, rule))
            found.append(LaneStays(lane, of_weights, of_gradients))
    return found


def _users(of_each: Sequence[Sequence[Stay]]) -> BufferUsers:
    users: dict[tuple[int, int], set[int]] = {}
    for number, each in enumerate(of_each):
        for stay in each:
            users.setdefault((number, stay.buffer), set()).add(stay.stage)
    return tuple(frozenset(users[key]) for key in sorted(users))


def _touching(schedule: Schedule, kinds: frozenset[str]) -> NDArray[np.bool_]:
    """Which rows are of some kinds, and of stages that have weights or of a shard."""
    chosen, weightless = schedule.table.of_kinds(kinds), schedule.shape.weightless
    return chosen & ~np.isin(home_column(schedule), [*weightless]) if weightless else chosen


def _uses(
    schedule: Schedule, lane: int, touching: NDArray[np.bool_]
) -> tuple[list[Use], list[Use]]:
    """Those ops of a lane that touch a buffer: those of stages, and those of a shard. Of several of
    one stage in a row the first and the last say all."""
    rows, shape = slice(*schedule.table.lane_start[lane : lane + 2].tolist()), schedule.shape
    home, items = home_column(schedule)[rows], item_numbers(schedule)[rows]
    chosen = touching[rows]
    if home.max(initial=0) < shape.stages:
        return _ends_of_runs(np.flatnonzero(chosen), home, items), []
    parts = (home < shape.stages, home >= shape.stages)
    own, shared = (_ends_of_runs(np.flatnonzero(chosen & each), home, items) for each in parts)
    return own, shared


def _ends_of_runs(places: NDArray[np.int64], home: Ints, items: Ints) -> list[Use]:
    if not len(places):
        return []
    changes = np.ones(len(places) + 1, np.bool_)
    changes[1:-1] = home[places[1:]] != home[places[:-1]]
    places = places[changes[:-1] | changes[1:]]
    columns = (places, items[places], home[places])
    return [*map(_USE_OF, zip(*(column.tolist() for column in columns)))]
