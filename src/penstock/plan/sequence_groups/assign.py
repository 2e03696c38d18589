"""Sequences assigned to groups of given sizes, so that the slowest group is fast.

The longest sequence goes first, each to the group that is then done earliest, as far as its memory
goes. Then the slowest group gives a sequence to another one, or swaps two, as long as both are
faster afterwards than the slowest was.
"""

from collections.abc import Sequence

import numpy as np

from penstock.plan.sequence_groups.groups import GroupedMicrobatch, group_microbatch
from penstock.plan.sequence_groups.member_kernels import fill_groups, improve_members
from penstock.plan.sequence_groups.priced import PricedSequences

TOLERATED = 1e-12
"""Share of a time by which another one has to be shorter to count as such."""
MOST_CHANGES = 100
"""Changes of one assignment; each looks at all members of the slowest group and of all others."""


class Assignment:
    """Members, work and free memory of groups of some sizes."""

    def __init__(self, priced: PricedSequences, degrees: Sequence[int], size: int = 0) -> None:
        """`size` is how many times a sequence and a group are looked at in the whole search that
        this is a part of; large ones are compiled."""
        self.priced, self.degrees = priced, tuple(degrees)
        self._size = size or len(priced) * len(degrees)
        self._rows = np.array([priced.row(degree) for degree in degrees])
        self._sizes = np.array(degrees, float)
        self._overhead = priced.overhead[self._rows]
        self._at = np.full(len(priced), -1)
        self._load = np.zeros(len(degrees))
        self._room = np.array(degrees) * priced.cost.capacity
        self._members = np.zeros(len(degrees), np.int64)
        self.seconds = 0.0
        """Of the slowest group."""

    @property
    def members(self) -> list[list[int]]:
        """The sequences of each group."""
        found: list[list[int]] = [[] for _ in self.degrees]
        for number, group in enumerate(self._at.tolist()):
            found[group].append(number)
        return found

    @property
    def grouped(self) -> GroupedMicrobatch:
        """The groups that have members."""
        lengths = self.priced.lengths.tolist()
        return group_microbatch(self.members, self.degrees, lengths, self.priced.cost)

    def fill(self) -> bool:
        """Give every sequence a group, the longest first; False where memory is not enough."""
        priced = self.priced
        known = (priced.lengths, priced.work, self._rows, self._sizes, self._overhead)
        found = bool(fill_groups(self._size, priced.order, *known, *self._state))
        self._time()
        return found

    def take(self, members: Sequence[Sequence[int]]) -> None:
        """Groups with these members."""
        for group, numbers in enumerate(members):
            self._at[list(numbers)] = group
            self._load[group] = self.priced.work[self._rows[group], list(numbers)].sum()
            self._room[group] -= self.priced.lengths[list(numbers)].sum()
            self._members[group] = len(numbers)
        self._time()

    def improve(self) -> None:
        """Change members as long as that makes the slowest group faster."""
        priced = self.priced
        known = (priced.lengths, priced.work, self._rows, self._sizes, self._overhead)
        improve_members(self._size, MOST_CHANGES, TOLERATED, *known, *self._state)
        self._time()

    def _time(self) -> None:
        times = self._load / self._sizes + self._overhead
        self.seconds = float(np.where(self._members, times, 0.0).max())

    @property
    def _state(self) -> tuple[np.ndarray, ...]:
        return self._at, self._load, self._room, self._members
