"""Plans the groups of batch after batch, for one cell and in one way.

Batches of equal lengths have equal plans, in whatever order the sequences come: so lengths are
sorted first, and the last plans are kept by what they are for. An evaluation, which has the same
batches each time, is planned once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

from penstock.plan.sequence_groups.batch import GROUPINGS, GroupedBatch
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.plan.sequence_groups.groups import SequenceGroup

MOST_PLANS = 64
"""Plans that are kept."""


class TimedPlan(NamedTuple):
    """The groups of a batch, and how long it took to find them."""

    batch: GroupedBatch
    seconds: float


@dataclass
class GroupPlanner:
    """What plans depend on beside lengths."""

    cell: int
    cost: GroupCost
    grouping: str = "flexible"
    """One of GROUPINGS."""
    _known: dict[tuple[int, ...], GroupedBatch] = field(
        default_factory=dict, repr=False, compare=False
    )

    def plan(self, lengths: Sequence[int]) -> TimedPlan:
        """The groups of a batch of these lengths, with the time that it took."""
        began = perf_counter()
        order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
        found = self._of_sorted(tuple(lengths[number] for number in order))
        return TimedPlan(_renumbered(found, order), perf_counter() - began)

    def _of_sorted(self, lengths: tuple[int, ...]) -> GroupedBatch:
        found = self._known.pop(lengths, None)
        if found is None:
            found = GROUPINGS[self.grouping](lengths, self.cell, self.cost)
        self._known[lengths] = found
        while len(self._known) > MOST_PLANS:
            del self._known[next(iter(self._known))]
        return found


def _renumbered(batch: GroupedBatch, numbers: Sequence[int]) -> GroupedBatch:
    """The same groups with other numbers of sequences."""
    return GroupedBatch(
        tuple(
            microbatch._replace(
                groups=tuple(
                    SequenceGroup(degree, tuple(sorted(numbers[member] for member in members)))
                    for degree, members in microbatch.groups
                )
            )
            for microbatch in batch.microbatches
        )
    )
