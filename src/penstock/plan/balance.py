"""Packed sequences dealt out by their cost: equal tokens are not equal work.

A token attends to everything before it in its sequence, so a slice of one long sequence is more
work than one of many short ones. A pipeline runs at the pace of its slowest slice, and replicas at
that of the slowest replica; both are dealt whole sequences, the dearest first, each to who has
least so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from penstock.arch.config import ModelConfig
from penstock.plan.packing import PackedPiece, Packing, Slice

MILLION = 10**6


@dataclass(frozen=True)
class TokenCost:
    """What tokens cost, in any unit: FLOPs, for example."""

    linear: int
    """Of a token, wherever it stands."""
    attention: int
    """Of a token and one that it attends to."""
    slice: int = 0
    """Of a slice, however short."""

    @classmethod
    def of_model(cls, model: ModelConfig, slice_tokens: int = 0) -> "TokenCost":
        """Millionths of the cost of a token in all weights; a slice costs as much as so many
        tokens more."""
        pair = round(Fraction(MILLION * model.flops_per_pair, model.flops_per_token))
        return cls(MILLION, pair, slice_tokens * MILLION)

    def of(self, start: int, stop: int) -> int:
        """Twice the cost of these tokens of a sequence, which is a whole number."""
        return (stop - start) * (2 * self.linear + self.attention * (start + stop))

    def of_slice(self, pieces: Slice) -> int:
        """Twice the cost of a slice."""
        return 2 * self.slice + sum(self.of(piece.start, piece.stop) for piece in pieces)

    def of_packing(self, packing: Packing) -> list[list[int]]:
        """Twice the cost of each slice of each microbatch."""
        return [[self.of_slice(slice) for slice in slices] for slices in packing.microbatches]


def balance_slices(packing: Packing, cost: TokenCost) -> Packing:
    """The same number of slices, with the short sequences dealt out so that the dearest slice of
    them is as cheap as is found.

    >>> from penstock.plan.packing import pack
    >>> even = balance_slices(pack([6, 2, 2, 2, 2, 2, 2], 10), TokenCost(linear=0, attention=1))
    >>> even.tokens
    ((8,), (10,))
    """
    alone = [slices[0] for slices in packing.microbatches if len(slices) == 1]
    dealt = _dealt(alone, packing.size, cost)
    if dealt is None or max(map(cost.of_slice, dealt)) >= max(map(cost.of_slice, alone)):
        return packing
    long = (slices for slices in packing.microbatches if len(slices) > 1)
    return replace(packing, microbatches=(*((slice,) for slice in dealt), *long))


def _dealt(slices: Sequence[Slice], size: int, cost: TokenCost) -> list[Slice] | None:
    """The pieces of some slices dealt out anew; None where that way leaves one without room."""
    pieces = sorted(
        (piece for slice in slices for piece in slice),
        key=lambda piece: (-cost.of(piece.start, piece.stop), piece.sequence),
    )
    found: list[list[PackedPiece]] = [[] for _ in slices]
    room, spent = [size] * len(slices), [0] * len(slices)
    for piece in pieces:
        tokens = piece.stop - piece.start
        fitting = [place for place, left in enumerate(room) if left >= tokens]
        if not fitting:
            return None
        chosen = min(fitting, key=lambda place: (spent[place], place))
        found[chosen].append(piece)
        room[chosen] -= tokens
        spent[chosen] += cost.of(piece.start, piece.stop)
    return sorted(tuple(sorted(members)) for members in found if members) or None


def deal_to_replicas(
    lengths: Sequence[int], replicas: int, cost: TokenCost
) -> tuple[tuple[int, ...], ...]:
    """The sequences of each replica, so that all have about as much to do; none may be left with
    nothing where there are fewer sequences than replicas.

    >>> deal_to_replicas([9, 1, 1, 1, 8], 2, TokenCost(linear=1, attention=0))
    ((0, 2), (1, 3, 4))
    """
    found: list[list[int]] = [[] for _ in range(replicas)]
    spent = [0] * replicas
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        chosen = min(range(replicas), key=lambda replica: (spent[replica], replica))
        found[chosen].append(number)
        spent[chosen] += cost.of(0, lengths[number])
    return tuple(tuple(sorted(members)) for members in found)
