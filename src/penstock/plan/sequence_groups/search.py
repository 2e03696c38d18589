"""The groups of a microbatch without a solver: choices of sizes, each filled by a rule.

There are few ways to divide 16 ranks or fewer: 36, each of which is tried. There are 202 ways for
32 ranks and 1828 for 64, so with more ranks than 16 the search goes from way to way: it begins with
groups of one size, divides a group in two or joins two of one size, and goes on from the best one,
as long as that is an improvement.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from penstock.plan.sequence_groups.assign import Assignment
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, group_microbatch, ways_to_group

ALL_WAYS = 16
"""Ranks up to which every way to divide them is tried."""
MOST_IMPROVED = 500
"""Sequences of all ways together whose members are changed, of those that are best without: where
there are many sequences, filling alone comes close."""

GroupSizes = tuple[int, ...]
"""Sizes of groups, the largest first."""


def search_groups(lengths: Sequence[int], cell: int, cost: GroupCost) -> GroupedMicrobatch | None:
    """The fastest groups that are found for a microbatch; None where memory is not enough."""
    degrees = sorted(degree for degree in cost.exchange if degree <= cell)
    if not degrees:
        return None
    usable = cell - cell % degrees[0]
    if cell <= ALL_WAYS:
        filled = _fill(ways_to_group(usable, degrees), lengths, cost)
    else:
        filled = _climb(usable, degrees, lengths, cost)
    return _best([*filled.values()], lengths, cost)


def _fill(
    ways: Iterator[GroupSizes], lengths: Sequence[int], cost: GroupCost
) -> dict[GroupSizes, Assignment]:
    """Each way with its sequences, as far as memory is enough."""
    tried = {way: Assignment(lengths, way, cost) for way in ways}
    return {way: assignment for way, assignment in tried.items() if assignment.fill()}


def _climb(
    cell: int, degrees: Sequence[int], lengths: Sequence[int], cost: GroupCost
) -> dict[GroupSizes, Assignment]:
    """Ways on the paths from groups of one size to the best ones near them."""
    filled = _fill((_of_one_size(cell, degree) for degree in degrees), lengths, cost)
    if not filled:
        return _fill(ways_to_group(cell, degrees), lengths, cost)
    for start in [*filled]:
        before: GroupSizes = ()
        here = start
        while here != before:
            near = {*_neighbours(here, degrees), here}
            filled |= _fill((way for way in sorted(near) if way not in filled), lengths, cost)
            known = ((filled[way].seconds, way) for way in near if way in filled)
            before, here = here, min(known)[1]
    return filled


def _of_one_size(cell: int, degree: int) -> GroupSizes:
    """Groups of one size; ranks that are left do nothing."""
    return (degree,) * (cell // degree)


def _neighbours(way: GroupSizes, degrees: Sequence[int]) -> Iterator[GroupSizes]:
    """Ways with one group divided into smaller ones of the next size, or some joined."""
    for small, large in pairwise(degrees):
        several = (small,) * (large // small)
        if large in way:
            yield _sorted([*way, *several], (large,))
        if way.count(small) >= len(several):
            yield _sorted([*way, large], several)


def _sorted(degrees: list[int], without: GroupSizes) -> GroupSizes:
    for degree in without:
        degrees.remove(degree)
    return tuple(sorted(degrees, reverse=True))


def search_one_size(
    lengths: Sequence[int], cell: int, cost: GroupCost, degree: int
) -> GroupedMicrobatch | None:
    """The same with groups of one size."""
    assignment = Assignment(lengths, (degree,) * (cell // degree), cost)
    return _best([assignment], lengths, cost) if assignment.fill() else None


def _best(
    filled: Sequence[Assignment], lengths: Sequence[int], cost: GroupCost
) -> GroupedMicrobatch | None:
    """The fastest assignment, once the most promising ones are improved."""
    promising = sorted(filled, key=lambda each: each.seconds)[
        : max(1, MOST_IMPROVED // len(lengths))
    ]
    for assignment in promising:
        assignment.improve()
    best = min(promising, key=lambda each: each.seconds, default=None)
    if best is None:
        return None
    return group_microbatch(best.members, best.degrees, lengths, cost)
