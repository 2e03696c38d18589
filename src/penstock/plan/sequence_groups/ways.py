"""Every choice of sizes of groups, and what each of them takes at least.

There are few ways to divide a cell: 36 for 16 ranks, 202 for 32, 1828 for 64. Filling one with
sequences takes longer than to say what it takes at least, for any members:

    the work of all sequences, each in the cheapest size that has memory for it, over all ranks
    the longest sequence of those that need a size, in the best group for it

So ways are filled in the order of these bounds, until the next bound is above what was found.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from penstock.plan.sequence_groups.groups import ways_to_group
from penstock.plan.sequence_groups.priced import PricedSequences

GroupSizes = tuple[int, ...]
"""Sizes of groups, the largest first."""


@lru_cache(maxsize=64)
def all_ways(cell: int, degrees: tuple[int, ...]) -> tuple[GroupSizes, ...]:
    """Every way to divide all ranks of a cell."""
    return tuple(ways_to_group(cell, degrees))


@lru_cache(maxsize=64)
def _counts(cell: int, degrees: tuple[int, ...]) -> np.ndarray:
    """Groups of each size in each way: [ways, sizes]."""
    ways = all_ways(cell, degrees)
    return np.array([[way.count(degree) for degree in degrees] for way in ways])


def ways_by_bound(
    cell: int, degrees: tuple[int, ...], priced: PricedSequences
) -> Iterator[tuple[float, GroupSizes]]:
    """Ways that may have memory enough, each with a time that it takes at least, the shortest
    first."""
    bounds = _bounds(cell, degrees, priced)
    ways = all_ways(cell, degrees)
    for at in np.argsort(bounds, kind="stable"):
        if bounds[at] == np.inf:
            return
        yield float(bounds[at]), ways[at]


def _bounds(cell: int, degrees: tuple[int, ...], priced: PricedSequences) -> np.ndarray:
    """What each way takes at least; infinite where its memory is not enough. Sequences are looked
    at by the smallest size that has memory for them, those of the largest size first."""
    counts, sizes, end = _counts(cell, degrees), np.array(degrees), len(degrees)
    work, slowest, needed = np.full(len(counts), priced.squared.sum()), np.zeros(len(counts)), 0
    for row in reversed(range(end)):
        own = np.flatnonzero(priced.smallest == row)
        tokens = int(priced.lengths[own].sum())
        needed += tokens
        slowest[counts[:, row:] @ sizes[row:] * priced.cost.capacity < needed] = np.inf
        if tokens:
            usable = counts[:, row:] > 0
            work += tokens * _least(usable, priced.per_token[row:end])
            longest = own[priced.lengths[own].argmax()]
            alone = priced.work[row:end, longest] / sizes[row:] + priced.overhead[row:end]
            slowest = np.maximum(slowest, _least(usable, alone))
    shared = work / cell + _least(counts > 0, priced.overhead[:end])
    found: np.ndarray = np.maximum(shared, slowest)
    return found


def _least(usable: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The smallest of some values for each way, of the sizes that it has."""
    found: np.ndarray = np.where(usable, values, np.inf).min(axis=1)
    return found


def of_one_size(cell: int, degree: int) -> GroupSizes:
    """Groups of one size; ranks that are left do nothing."""
    return (degree,) * (cell // degree)


def near_ways(way: GroupSizes, degrees: Sequence[int]) -> Iterator[GroupSizes]:
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
