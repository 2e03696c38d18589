"""Sequences assigned to groups of given sizes, so that the slowest group is fast.

The longest sequence goes first, each to the group that is then done earliest, as far as its memory
goes. Then the slowest group gives a sequence to another one, or swaps two, as long as both are
faster afterwards than the slowest was.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from penstock.plan.sequence_groups.cost import GroupCost

TOLERATED = 1e-12
"""Share of a time by which another one has to be shorter to count as such."""
MOST_CHANGES = 100
"""Changes of one assignment; each looks at all members of the slowest group and of all others."""


class MemberChange(NamedTuple):
    """What the slowest group gives to another one, and what it gets for it."""

    seconds: float
    """Of the slower of both afterwards."""
    given: int
    to: int
    taken: int | None


class Assignment:
    """Members, work and free memory of groups of some sizes."""

    def __init__(self, lengths: Sequence[int], degrees: Sequence[int], cost: GroupCost) -> None:
        self.lengths, self.degrees, self.cost = lengths, degrees, cost
        self.members: list[list[int]] = [[] for _ in degrees]
        self._load = [0.0] * len(degrees)
        self._room = [degree * cost.capacity for degree in degrees]
        self._overhead = [cost.overhead(degree) for degree in degrees]
        self._work = {
            degree: [cost.work(length, degree) for length in lengths] for degree in set(degrees)
        }

    @property
    def seconds(self) -> float:
        """Of the slowest group."""
        return max(map(self._seconds, range(len(self.degrees))))

    def fill(self) -> bool:
        """Give every sequence a group, the longest first; False where memory is not enough."""
        least: dict[int, list[tuple[float, int]]] = {}
        for at, degree in enumerate(self.degrees):
            least.setdefault(degree, []).append((0.0, at))
        for number in sorted(range(len(self.lengths)), key=lambda each: -self.lengths[each]):
            fitting = [at for groups in least.values() for at in self._first(groups, number)]
            if not fitting:
                return False
            at = min(fitting, key=lambda at: self._with(at, number))
            groups = least[self.degrees[at]]
            groups.remove((self._load[at], at))
            self._put(number, at)
            insort(groups, (self._load[at], at))
        return True

    def _first(self, groups: Sequence[tuple[float, int]], number: int) -> list[int]:
        """Of groups of one size the one with the least work that has room for a sequence."""
        found = (at for _, at in groups if self._room[at] >= self.lengths[number])
        return list(islice(found, 1))

    def take(self, members: Sequence[Sequence[int]]) -> None:
        """Groups with these members."""
        for at, each in enumerate(members):
            for number in each:
                self._put(number, at)

    def improve(self) -> None:
        """Change members as long as that makes the slowest group faster."""
        for _ in range(MOST_CHANGES):
            slow = max(range(len(self.degrees)), key=self._seconds)
            limit = self._seconds(slow) * (1 - TOLERATED)
            best = min(self._changes(slow), key=lambda change: change.seconds, default=None)
            if best is None or best.seconds >= limit:
                return
            self._move(best.given, slow, best.to)
            if best.taken is not None:
                self._move(best.taken, best.to, slow)

    def _changes(self, slow: int) -> Iterator[MemberChange]:
        for given in self.members[slow]:
            for to in range(len(self.degrees)):
                if to != slow:
                    yield from self._between(slow, to, given)

    def _between(self, slow: int, to: int, given: int) -> Iterator[MemberChange]:
        """Giving one sequence to a group, alone or for one of its own."""
        size, left = self.lengths[given], self._with(slow, given, -1)
        if self._room[to] >= size:
            yield MemberChange(max(left, self._with(to, given)), given, to, None)
        for taken in self.members[to]:
            more = size - self.lengths[taken]
            if self._room[to] >= more and self._room[slow] >= -more:
                here = left + self._work[self.degrees[slow]][taken] / self.degrees[slow]
                there = self._work[self.degrees[to]]
                gained = (there[given] - there[taken]) / self.degrees[to]
                yield MemberChange(max(here, self._seconds(to) + gained), given, to, taken)

    def _seconds(self, at: int) -> float:
        return self._load[at] / self.degrees[at] + self._overhead[at] if self.members[at] else 0.0

    def _with(self, at: int, number: int, sign: int = 1) -> float:
        """Seconds of a group with one sequence more, or less."""
        load = self._load[at] + sign * self._work[self.degrees[at]][number]
        return load / self.degrees[at] + self._overhead[at]

    def _put(self, number: int, at: int) -> None:
        self.members[at].append(number)
        self._load[at] += self._work[self.degrees[at]][number]
        self._room[at] -= self.lengths[number]

    def _move(self, number: int, source: int, to: int) -> None:
        self.members[source].remove(number)
        self._load[source] -= self._work[self.degrees[source]][number]
        self._room[source] += self.lengths[number]
        self._put(number, to)
