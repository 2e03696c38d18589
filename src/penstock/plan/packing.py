"""A batch of sequences of very unequal lengths as slices of one size.

Long sequences are cut at multiples of the size, and the slices of one make one microbatch; short
ones are packed whole, as many as fit, and each packed slice is a microbatch of its own. Fewer
slices are less work per step and fewer bubbles, so the packer tries the smallest number that could
hold the tokens first, then one more, and so on. Source: arXiv:2503.02356, algorithm 1.

    sequences of 4, 2, 1 and 1 tokens, slices of 2
    microbatch 0  [bb]         microbatch 1  [cd]         microbatch 2  [aa][aa]

The last slice of a long sequence is rarely full. With `pack_tails` short sequences fill it, behind
the end of the long one: attention knows where documents begin, so nothing else changes.

    sequences of 3, 2, 1 and 1 tokens, slices of 2
    microbatch 0  [bb]         microbatch 1  [d]          microbatch 2  [aa][ac]
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from penstock.errors import ShapeError
from penstock.plan._bins import fewest_bins


class PackedPiece(NamedTuple):
    """Some consecutive tokens of one sequence."""

    sequence: int
    start: int
    stop: int


Slice = tuple[PackedPiece, ...]


@dataclass(frozen=True)
class Packing:
    """Microbatches of slices of at most `size` tokens: those of short sequences first."""

    size: int
    microbatches: tuple[tuple[Slice, ...], ...]

    @property
    def lengths(self) -> tuple[Fraction, ...]:
        """Length of each microbatch, counted in slices."""
        return tuple(Fraction(sum(tokens), self.size) for tokens in self.tokens)

    @cached_property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of each slice of each microbatch."""
        return tuple(
            tuple(sum(piece.stop - piece.start for piece in slice) for slice in slices)
            for slices in self.microbatches
        )

    @property
    def slices(self) -> tuple[int, ...]:
        """How many slices each microbatch has."""
        return tuple(map(len, self.microbatches))

    def long_first(self) -> "Packing":
        """The same microbatches, those of most slices first: a long sequence that comes late finds
        no others to fill the pipeline with while it ends."""
        return replace(self, microbatches=tuple(sorted(self.microbatches, key=len, reverse=True)))


def pack(lengths: Sequence[int], size: int) -> Packing:
    """Sequences of these lengths as slices of at most `size` tokens.

    >>> [str(length) for length in pack([4, 2, 1, 1], 2).lengths]
    ['1', '1', '2']
    """
    return _packed(lengths, size, rooms={})


def pack_tails(lengths: Sequence[int], size: int, longest: int) -> Packing:
    """The same, and short sequences may stand behind the end of a long one, in its last slice; no
    microbatch then has more than `longest` tokens.

    >>> [str(length) for length in pack_tails([3, 2, 1, 1], 2, 4).lengths]
    ['1', '1/2', '2']
    """
    rooms = {
        number: min(-length % size, longest - length)
        for number, length in enumerate(lengths)
        if length > size and length % size and length < longest
    }
    return _packed(lengths, size, rooms)


def _packed(lengths: Sequence[int], size: int, rooms: dict[int, int]) -> Packing:
    """The packing where the last slices of some long sequences have room."""
    _refuse(lengths, size)
    long = [number for number, length in enumerate(lengths) if length > size]
    short = {number: length for number, length in enumerate(lengths) if length <= size}
    bins = [
        tuple(PackedPiece(number, 0, short[number]) for number in members)
        for members in fewest_bins(short, size, tuple(rooms.values()))
    ]
    behind = dict(zip(rooms, bins))
    cut = (_cut(number, lengths[number], size, behind.get(number, ())) for number in long)
    return Packing(size, (*((slice,) for slice in bins[len(rooms) :]), *cut))


def _refuse(lengths: Sequence[int], size: int) -> None:
    if size < 1 or not lengths or min(lengths) < 1:
        raise ShapeError(
            f"{len(lengths)} sequences cannot be packed into slices of {size} tokens",
            hint="give at least one sequence, of 1 token or more, and slices of 1 token or more",
        )


def _cut(number: int, length: int, size: int, behind: Slice) -> tuple[Slice, ...]:
    """The slices of a long sequence, with what stands behind its end in the last one."""
    starts = range(0, length, size)
    *whole, last = (PackedPiece(number, start, min(start + size, length)) for start in starts)
    return (*((piece,) for piece in whole), (last, *behind))
