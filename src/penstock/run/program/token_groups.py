"""Which ranks of a cell share which tokens of a microbatch.

Usually all ranks of a cell that exchange tokens for heads share each microbatch. Where sequences
have very unequal lengths, they form groups of unequal sizes, and each group has whole sequences of
its own. The microbatch has the tokens of all groups one behind the other, so that whoever counts
its labels or its length need not know of groups.

    ranks 0..3 as <2, 1>, 6 and 3 tokens      ranks 0 1: tokens 0..5    rank 2: 6..8    rank 3: none

Where a microbatch has slices, each group cuts its own tokens into so many, as even as can be.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from penstock.arch.dealing import deal_sizes
from penstock.errors import ShapeError


class TokenGroup(NamedTuple):
    """Some ranks, and how many tokens they share."""

    ranks: int
    tokens: int


class GroupPlace(NamedTuple):
    """Where a rank stands among the groups of a microbatch."""

    ranks: int
    """Of its group."""
    tokens: range
    """Of its group, in the microbatch."""


MicrobatchGroups = tuple[TokenGroup, ...]
"""The groups of one microbatch, the largest first; ranks behind them have no tokens."""


def place_in(groups: MicrobatchGroups, rank: int) -> GroupPlace:
    """The group of a rank, by its number among those that exchange.

    >>> place_in((TokenGroup(2, 6), TokenGroup(1, 3)), 2)
    GroupPlace(ranks=1, tokens=range(6, 9))
    """
    first = 0
    for group, end in zip(groups, accumulate(group.tokens for group in groups)):
        first += group.ranks
        if rank < first:
            return GroupPlace(group.ranks, range(end - group.tokens, end))
    whole = sum(group.tokens for group in groups)
    return GroupPlace(1, range(whole, whole))


def sliced_groups(groups: MicrobatchGroups, slices: int) -> tuple[int, ...]:
    """Tokens of each slice of a microbatch, of all groups together; a group with fewer tokens than
    slices has none in some.

    >>> sliced_groups((TokenGroup(2, 6), TokenGroup(1, 3)), 2)
    (4, 5)
    """
    cuts = (deal_sizes(group.tokens, slices) for group in groups)
    return tuple(map(sum, zip(*cuts)))


def partial_group_sizes(exchanging: int) -> Iterator[int]:
    """Ranks of all groups that so many ranks may form beside the whole.

    >>> list(partial_group_sizes(8)), list(partial_group_sizes(6))
    ([2, 4], [2, 4])
    """
    return (1 << power for power in range(1, exchanging.bit_length()) if 1 << power < exchanging)


def refuse_groups(
    groups: Sequence[MicrobatchGroups], lengths: Sequence[Sequence[int]], exchanging: int
) -> None:
    """Refuse groups that do not hold the tokens of their microbatch, or for which there are no
    ranks, or that stand at no multiple of their size."""
    if len(groups) != len(lengths):
        raise ShapeError(
            f"{len(groups)} microbatches have groups, but the plan has {len(lengths)}",
            hint="give groups for every microbatch",
        )
    usable = {1, exchanging, *partial_group_sizes(exchanging)}
    for mb, (of_mb, slices) in enumerate(zip(groups, lengths)):
        sizes = [group.ranks for group in of_mb]
        if (
            sizes != sorted(sizes, reverse=True)
            or not {*sizes} <= usable
            or sum(sizes) > exchanging
        ):
            raise ShapeError(
                f"microbatch {mb} has groups of {', '.join(map(str, sizes))} ranks, but "
                f"{exchanging} ranks exchange tokens for heads",
                hint="give powers of two, the largest first, and no more ranks than there are",
            )
        tokens = sum(group.tokens for group in of_mb)
        if min(group.tokens for group in of_mb) < 1 or tokens != sum(slices):
            raise ShapeError(
                f"the groups of microbatch {mb} have {tokens} tokens, but it has {sum(slices)}",
                hint="give every group a token at least, and all groups all tokens",
            )
        if tuple(slices) != (cut := sliced_groups(of_mb, len(slices))):
            raise ShapeError(
                f"the slices of microbatch {mb} have {_listed(slices)} tokens, but those of its "
                f"groups have {_listed(cut)}",
                hint="let every group cut its tokens as even as can be (sliced_groups)",
            )


def _listed(lengths: Sequence[int]) -> str:
    return ", ".join(map(str, lengths))
