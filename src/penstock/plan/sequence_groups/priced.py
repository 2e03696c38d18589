"""The sequences of a microbatch with their work in groups of every size, as arrays.

A search fills thousands of choices of groups with the same sequences. What all of these need is
worked out once.
"""

from collections.abc import Sequence

import numpy as np

from penstock.plan.sequence_groups.cost import GroupCost


class PricedSequences:
    """Lengths of a microbatch, and seconds of each sequence by the size of its group."""

    def __init__(self, lengths: Sequence[int], cost: GroupCost) -> None:
        self.cost = cost
        self.lengths = np.array(lengths, np.int64)
        self.order = np.argsort(-self.lengths, kind="stable")
        """The longest first."""
        self.degrees = tuple(sorted(cost.exchange))
        """Sizes that groups may have; other arrays have a row for each of them."""
        self.per_token = np.array([cost.token + cost.exchange[d].token for d in self.degrees])
        self.overhead = np.array([cost.overhead(degree) for degree in self.degrees], float)
        self.squared = cost.pair * self.lengths.astype(float) * self.lengths
        """The part of the work that is the same in all groups."""
        self.work = self.squared + self.per_token[:, None] * self.lengths
        """Seconds of a sequence, times the ranks of its group: [sizes, sequences]."""
        self.smallest = np.searchsorted(np.array(self.degrees) * cost.capacity, self.lengths)
        """Row of the smallest groups that have memory for a sequence; one behind the last where
        none has."""

    def __len__(self) -> int:
        return len(self.lengths)

    def row(self, degree: int) -> int:
        """The row of groups of that size."""
        return self.degrees.index(degree)
