"""Which stages are in the few buffers of a device, from which op to which.

With sharded weights a device has buffers for some of its stages. Which stage takes the place of
which follows from the order of the ops that use them, and from a rule. A stay is one stage in one
buffer, from the first op that uses it there to the last.

    one buffer        F0 F1 f0 f1 b0 b1 B0 B1
    stays             0     1           0       stage 0 comes back
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.homes import home_column
from penstock.core.kernel import kernel
from penstock.core.meaning import MEANING, kinds_writing
from penstock.core.schedule import Schedule
from penstock.core.table import Ticks
from penstock.errors import ShapeError
from penstock.transform._blocks import item_numbers

USING = frozenset(
    k for k, entry in MEANING.items() if any(r.buffer == "weight" for r in entry.reads)
)
"""Kinds that need the whole weights of their stage."""
ADDING = kinds_writing("dw")
"""Kinds that add to the weight gradient of their stage."""


class BufferRule(NamedTuple):
    """Which buffer a stage takes: the first one whose weighted sum of three numbers is least."""

    away: int = 0
    """Weight of how many buffers it is behind the one of the stage's own number."""
    last: int = 0
    """Weight of the place at which it was used last, -1 where it never was."""
    following: int = 0
    """Weight of the place at which its stage is needed next."""


BY_NUMBER = BufferRule(away=1)
"""Stage number i of a device always has buffer i modulo their number."""
LEAST_RECENT = BufferRule(last=1)
"""The buffer that has not been used for the longest time."""
FARTHEST = BufferRule(following=-1)
"""The buffer whose stage is not needed for the longest time: no rule gathers less."""

NO_PLACE = 2**62
"""The place of what never comes."""


class Stays(NamedTuple):
    """Columns of stays, each a stage in a buffer from the first op that uses it there to the last:
    lane after lane, in the order of the first ops."""

    lane: Ticks
    stage: Ticks
    ordinal: Ticks
    """How often the stage was in a buffer before."""
    first: Ticks
    last: Ticks
    """Places of these ops in the lane."""
    freed: Ticks
    """Place of the last op that used the buffer before; -1 where there was none."""
    buffer: Ticks
    """The number of the buffer."""
    then: Ticks
    """Place of the first op that uses the buffer for another stage; -1 where there is none."""


_LANE, _STAGE, _ORDINAL, _FIRST, _LAST, _FREED, _BUFFER, _THEN = range(8)
"""Their numbers."""

BufferUsers = tuple[frozenset[int], ...]
"""For each buffer the stages that it takes in turn."""


class BufferStays(NamedTuple):
    """Who is in the buffers of all devices, of their stages and of their vocabulary shards apart: a
    shard is used all through the step, so it has buffers of its own and never leaves them."""

    weights: tuple[Stays, Stays]
    gradients: tuple[Stays, Stays]

    def users(self, lane: int) -> tuple[BufferUsers, BufferUsers]:
        """The users of a lane's buffers of weights, and of those of gradients."""
        return _users(self.weights, lane), _users(self.gradients, lane)


def _users(of_each: Sequence[Stays], lane: int) -> BufferUsers:
    users: dict[tuple[int, int], set[int]] = {}
    for number, each in enumerate(of_each):
        own = slice(*np.searchsorted(each.lane, (lane, lane + 1)).tolist())
        for buffer, stage in zip(each.buffer[own].tolist(), each.stage[own].tolist()):
            users.setdefault((number, buffer), set()).add(stage)
    return tuple(frozenset(users[key]) for key in sorted(users))


def stays_in_buffers(
    schedule: Schedule, *, weights: int, gradients: int, rule: BufferRule
) -> BufferStays:
    """Of each compute lane, with so many buffers."""
    using, adding = (_touching(schedule, kinds) for kinds in (USING, ADDING))
    return BufferStays(
        _of_stages_and_shards(schedule, using, (weights, min(weights, 1)), rule),
        _of_stages_and_shards(schedule, adding, (gradients, 1), rule),
    )


def _touching(schedule: Schedule, kinds: frozenset[str]) -> NDArray[np.bool_]:
    """Which rows are of some kinds, and of stages that have weights or of a shard."""
    chosen, weightless = schedule.table.of_kinds(kinds), schedule.shape.weightless
    return chosen & ~np.isin(home_column(schedule), [*weightless]) if weightless else chosen


def _of_stages_and_shards(
    schedule: Schedule,
    touching: NDArray[np.bool_],
    counts: tuple[int, int],
    rule: BufferRule,
) -> tuple[Stays, Stays]:
    """The stays of ops that touch the buffers of stages, and of those of shards."""
    sharded = home_column(schedule) >= schedule.shape.stages
    return (
        _stays(schedule, touching & ~sharded, counts[0], rule),
        _stays(schedule, touching & sharded, counts[1], rule),
    )


def _stays(schedule: Schedule, touching: NDArray[np.bool_], count: int, rule: BufferRule) -> Stays:
    """Who is in so many buffers; nobody without any."""
    rows = int(np.count_nonzero(touching)) if count else 0
    found = np.full((len(Stays._fields), rows), -1, np.int64)
    if not rows:
        return Stays(*found)
    table, home, items = schedule.table, home_column(schedule), item_numbers(schedule)
    columns = (table.lane_start, table.lanes_of("compute"), home, items, touching)
    size = _take_turns(len(table), *columns, int(home.max()) + 1, count, tuple(rule), found)
    stays = Stays(*found[:, :size])
    if schedule.pairs:
        _refuse_both(schedule, stays)
    return stays


def _refuse_both(schedule: Schedule, stays: Stays) -> None:
    """Refuse one buffer for the two strands of a pair."""
    home, items = home_column(schedule), item_numbers(schedule)
    left = np.flatnonzero(stays.then >= 0)
    start = schedule.table.lane_start[stays.lane[left]]
    then = start + stays.then[left]
    wrong = items[start + stays.last[left]] == items[then]
    if wrong.any():
        first = np.flatnonzero(wrong)[np.argmin(then[wrong])]
        raise ShapeError(
            f"a pair needs stages {stays.stage[left[first]]} and {home[then[first]]} at once, in "
            "the same buffer",
            hint="give at least 2 buffers",
        )


@kernel
def _take_turns(
    lane_start: Any, lanes: Any, home: Any, item: Any, touching: Any, homes: Any, count: Any,
    rule: Any, found: Any,
) -> int:  # fmt: skip
    """Fill in the stays of some lanes; return their number.

    A stage is needed next where it is used next, but at once where the other strand of the same
    pair uses it.
    """
    size, following = 0, np.empty(len(home), np.int64)
    for lane in lanes:
        start, end = lane_start[lane], lane_start[lane + 1]
        coming, number = np.full(homes, NO_PLACE, np.int64), np.zeros(homes, np.int64)
        for row in range(end - 1, start - 1, -1):
            if touching[row]:
                following[row] = coming[home[row]]
                coming[home[row]] = row - start
        number[1:] = np.cumsum(coming < NO_PLACE)[:-1]
        there, held = np.full(homes, -1, np.int64), np.full(count, -1, np.int64)
        ordinal = np.zeros(homes, np.int64)
        for row in range(start, end):
            if not touching[row]:
                continue
            stage, place = home[row], row - start
            if there[stage] < 0:
                chosen, least, freed = -1, 0, -1
                for buffer in range(count):
                    last, needed = -1, NO_PLACE
                    if held[buffer] >= 0:
                        last = found[_LAST, held[buffer]]
                        braided = item[start + last] == item[row]
                        needed = place if braided else following[start + last]
                    away = (buffer - number[stage]) % count
                    total = rule[0] * away + rule[1] * last + rule[2] * needed
                    if chosen < 0 or total < least:
                        chosen, least, freed = buffer, total, last
                if held[chosen] >= 0:
                    found[_THEN, held[chosen]] = place
                    there[found[_STAGE, held[chosen]]] = -1
                found[_LANE, size], found[_STAGE, size] = lane, stage
                found[_ORDINAL, size], found[_FIRST, size] = ordinal[stage], place
                found[_FREED, size], found[_BUFFER, size] = freed, chosen
                held[chosen] = there[stage] = size
                ordinal[stage] += 1
                size += 1
            found[_LAST, there[stage]] = place
    return size
