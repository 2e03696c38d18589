"""Groups that the ranks of a cell form for a microbatch, and every way to form them.

A group of d ranks stands at a multiple of d, so a rank is in one group of each size at most, and
the groups of all plans are few. Groups in the order of their sizes, the largest first, stand so
without a gap.

    8 ranks as <4, 2, 1, 1>:   [0 1 2 3] [4 5] [6] [7]
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from penstock.plan.sequence_groups.cost import GroupCost


class SequenceGroup(NamedTuple):
    """Some ranks, and the sequences that they share."""

    degree: int
    """How many ranks."""
    members: tuple[int, ...]
    """Sequences, by number."""


class GroupedMicrobatch(NamedTuple):
    """The groups of one microbatch, the largest first; ranks behind them have nothing to do."""

    groups: tuple[SequenceGroup, ...]
    seconds: float
    """Of the slowest group."""

    @property
    def degrees(self) -> tuple[int, ...]:
        return tuple(group.degree for group in self.groups)

    @property
    def spans(self) -> tuple[range, ...]:
        """Ranks of each group, by their numbers in the cell."""
        ends = accumulate(self.degrees)
        return tuple(range(end - degree, end) for end, degree in zip(ends, self.degrees))


def group_microbatch(
    members: Sequence[Sequence[int]],
    degrees: Sequence[int],
    lengths: Sequence[int],
    cost: GroupCost,
) -> GroupedMicrobatch:
    """The groups that have members, in their order on the ranks."""
    found = [SequenceGroup(d, tuple(sorted(each))) for d, each in zip(degrees, members) if each]
    found.sort(key=lambda group: (-group.degree, group.members))
    times = (
        cost.seconds([lengths[number] for number in group.members], group.degree) for group in found
    )
    return GroupedMicrobatch(tuple(found), max(times))


def ways_to_group(cell: int, degrees: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every choice of sizes that together are all ranks of a cell, the largest first.

    >>> list(ways_to_group(4, (1, 2, 4)))
    [(4,), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    """
    if not cell:
        yield ()
    for degree in sorted(degrees, reverse=True):
        if degree <= cell:
            smaller = [other for other in degrees if other <= degree]
            yield from ((degree, *rest) for rest in ways_to_group(cell - degree, smaller))
