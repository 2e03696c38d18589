"""Seconds and memory of a group of ranks that share the tokens of some sequences.

Attention grows with the square of a sequence, everything else with its tokens, and a group divides
both. What it pays for that is the exchange of tokens for heads, which is fast among few ranks and
slow among ranks of several machines. With d ranks and sequences of s tokens

    seconds = (pair sum(s^2) + (token + exchange(d)) sum(s)) / d + fixed + start(d)
    tokens of a rank = sum(s) / d, at most its capacity

Nothing of the exchange is hidden. Source: arXiv:2412.01523, section 4.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import PlanError, ShapeError


class ExchangeCost(NamedTuple):
    """What the exchange of a group costs."""

    token: float = 0.0
    """Seconds of one token, were it exchanged by one rank alone."""
    start: float = 0.0
    """Seconds of a microbatch, however few tokens it has."""


@dataclass(frozen=True)
class GroupCost:
    """What a microbatch costs on groups of the sizes that there may be."""

    pair: float
    """Seconds of a squared token on one rank."""
    token: float
    """Seconds of a token on one rank."""
    fixed: float
    """Seconds of a microbatch, however few tokens it has."""
    exchange: Mapping[int, ExchangeCost]
    """By the ranks of a group; other sizes are not used."""
    capacity: int
    """Tokens of one rank that there is memory for."""

    def __post_init__(self) -> None:
        if not self.exchange or min(self.exchange) < 1 or self.capacity < 1:
            raise ShapeError(
                f"groups of {', '.join(map(str, self.exchange)) or 'no'} ranks with "
                f"{self.capacity} tokens each",
                hint="give sizes of groups and a number of tokens, all above 0",
            )

    def work(self, length: int, degree: int) -> float:
        """Seconds of one sequence in a group, times the ranks of the group."""
        per_token = self.token + self.exchange[degree].token
        return self.pair * length * length + per_token * length

    def overhead(self, degree: int) -> float:
        """Seconds of a microbatch in a group, however few tokens it has."""
        return self.fixed + self.exchange[degree].start

    def seconds(self, lengths: Sequence[int], degree: int) -> float:
        """Of a group that works on sequences of these lengths.

        >>> GroupCost(1, 2, 3, {2: ExchangeCost(4)}, capacity=9).seconds([2, 4], 2)
        31.0
        """
        work = sum(self.work(length, degree) for length in lengths)
        return work / degree + self.overhead(degree)

    def smallest_degree(self, length: int) -> int:
        """Ranks of the smallest group that has memory for a sequence."""
        enough = [degree for degree in self.exchange if degree * self.capacity >= length]
        if not enough:
            raise PlanError(
                f"a sequence has {length} tokens, but the largest group, of "
                f"{max(self.exchange)} ranks, has memory for {max(self.exchange) * self.capacity}",
                hint="take more ranks, recompute activations, or leave longer sequences out",
            )
        return min(enough)

    def shared_by(self, count: int) -> "GroupCost":
        """The same where each rank is so many that share its tokens, as those of a ring do; the
        capacity is that of all of them already.

        >>> GroupCost(4, 2, 3, {1: ExchangeCost(8, 5)}, capacity=9).shared_by(2).seconds([2], 1)
        26.0
        """
        exchange = {d: ExchangeCost(e.token / count, e.start) for d, e in self.exchange.items()}
        return GroupCost(self.pair / count, self.token / count, self.fixed, exchange, self.capacity)


def powers_of_two(most: int) -> tuple[int, ...]:
    """Sizes that groups have: each rank is then in few different groups.

    >>> powers_of_two(12)
    (1, 2, 4, 8)
    """
    return tuple(1 << power for power in range(most.bit_length()))
