"""The groups of every microbatch of a batch, in one of three ways.

    static           groups of one size that is given; sequences are packed, best fit, longest first
    batch adaptive   groups of one size, the best for this batch
    flexible         groups of any sizes, others in every microbatch

More microbatches than memory asks for may be faster, as sequences in each are more alike; so some
more are tried. Microbatches run one after the other, and the slowest group decides about each.
Every plan of a way is one of the next way too, so each way is at least as fast as the one before.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.errors import PlanError
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, SequenceGroup, group_microbatch
from penstock.plan.sequence_groups.microbatches import (
    Cutting,
    Runs,
    fewest_microbatches,
    sorted_runs,
)
from penstock.plan.sequence_groups.search import search_groups, search_one_size

MORE_MICROBATCHES = 5
"""Numbers of microbatches that are tried, from the fewest that a plan exists for."""

Solving = Callable[[Sequence[int], int, GroupCost], GroupedMicrobatch | None]
"""What finds the groups of a microbatch: `search_groups`, or `solve_groups`."""


class GroupedBatch(NamedTuple):
    """The microbatches of a batch; sequences are numbered as the batch has them."""

    microbatches: tuple[GroupedMicrobatch, ...]

    @property
    def seconds(self) -> float:
        return sum(microbatch.seconds for microbatch in self.microbatches)


BatchGrouping = Callable[[Sequence[int], int, GroupCost], GroupedBatch]
"""Groups the sequences of a batch: lengths, ranks of a cell, and what groups cost."""


def static_groups(lengths: Sequence[int], cell: int, cost: GroupCost, degree: int) -> GroupedBatch:
    """Groups of one size in all microbatches, packed without a look at their times."""
    room = degree * cost.capacity
    for length in lengths:
        if length > room:
            raise PlanError(
                f"a sequence has {length} tokens, but a group of {degree} ranks has memory for "
                f"{room}",
                hint=f"take groups of {cost.smallest_degree(length)} ranks",
            )
    bins = _best_fit(lengths, room)
    each = cell // degree
    runs = [bins[first : first + each] for first in range(0, len(bins), each)]
    return GroupedBatch(
        tuple(group_microbatch(members, [degree] * len(members), lengths, cost) for members in runs)
    )


def adaptive_groups(
    lengths: Sequence[int], cell: int, cost: GroupCost, cut: Cutting = sorted_runs
) -> GroupedBatch:
    """Groups of the size that is best for this batch."""
    longest = cost.smallest_degree(max(lengths))
    degrees = [degree for degree in cost.exchange if longest <= degree <= cell]
    if not degrees:
        raise PlanError(
            f"a sequence has {max(lengths)} tokens and needs {longest} ranks, but there are {cell}",
            hint="take more ranks, recompute activations, or leave longer sequences out",
        )
    found = [static_groups(lengths, cell, cost, degree) for degree in degrees]
    for degree in degrees:
        found += _batches(lengths, cell, cost, partial(search_one_size, degree=degree), cut)
    return _fastest(found)


def flexible_groups(
    lengths: Sequence[int],
    cell: int,
    cost: GroupCost,
    solve: Solving = search_groups,
    cut: Cutting = sorted_runs,
) -> GroupedBatch:
    """Groups of any sizes, chosen for each microbatch."""
    adaptive = adaptive_groups(lengths, cell, cost, cut)
    return _fastest([adaptive, *_batches(lengths, cell, cost, solve, cut)])


def _of_given_size(lengths: Sequence[int], cell: int, cost: GroupCost) -> GroupedBatch:
    """Groups of the only size that the cost knows."""
    return static_groups(lengths, cell, cost, max(cost.exchange))


GROUPINGS: Mapping[str, BatchGrouping] = {
    "flexible": flexible_groups,
    "batch-adaptive": adaptive_groups,
    "static": _of_given_size,
}
"""Ways to group a batch, by the names that configurations have for them."""


def _fastest(found: Sequence[GroupedBatch]) -> GroupedBatch:
    return min(found, key=lambda batch: batch.seconds)


def _batches(
    lengths: Sequence[int], cell: int, cost: GroupCost, solve: Solving, cut: Cutting
) -> Iterator[GroupedBatch]:
    """The batch in the fewest microbatches that it can be grouped in, and in some more."""
    found, count = 0, fewest_microbatches(lengths, cell * cost.capacity)
    while found < MORE_MICROBATCHES and count <= len(lengths):
        batch = _microbatches(cut(lengths, count), lengths, cell, cost, solve)
        if batch is not None:
            found += 1
            yield batch
        count += 1


def _microbatches(
    runs: Runs, lengths: Sequence[int], cell: int, cost: GroupCost, solve: Solving
) -> GroupedBatch | None:
    """Each run as a microbatch of groups; None where memory is not enough for one of them."""
    found = []
    for run in runs:
        tokens = [lengths[number] for number in run]
        each = solve(tokens, cell, cost) if sum(tokens) <= cell * cost.capacity else None
        if each is None:
            return None
        groups = [
            SequenceGroup(group.degree, tuple(sorted(run[number] for number in group.members)))
            for group in each.groups
        ]
        found.append(GroupedMicrobatch(tuple(groups), each.seconds))
    return GroupedBatch(tuple(found))


def _best_fit(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Sequences in bins, the longest first, each into the fullest bin that takes it."""
    bins: list[list[int]] = []
    left: list[tuple[int, int]] = []
    for number in sorted(range(len(lengths)), key=lambda each: (-lengths[each], each)):
        place = bisect_left(left, (lengths[number], 0))
        free, at = left.pop(place) if place < len(left) else (room, len(bins))
        if at == len(bins):
            bins.append([])
        bins[at].append(number)
        insort(left, (free - lengths[number], at))
    return bins
