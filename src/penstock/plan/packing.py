"""A batch of sequences of very unequal lengths as slices of one size.

Long sequences are cut at multiples of the size, and the slices of one make one microbatch; short
ones are packed whole, as many as fit, and each packed slice is a microbatch of its own. Fewer
slices are less work per step and fewer bubbles, so the packer tries the smallest number that could
hold the tokens first, then one more, and so on. Source: arXiv:2503.02356, algorithm 1.

    sequences of 4, 2, 1 and 1 tokens, slices of 2
    microbatch 0  [bb]         microbatch 1  [cd]         microbatch 2  [aa][aa]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from penstock.errors import ShapeError

SEARCH_STEPS = 20_000
"""Places tried for one number of slices before the search gives up and one more is taken."""
SEARCHED_EXACTLY = 200
"""Short sequences up to which every way to place them is tried; with more, greedy ones are."""


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
        tokens = [
            sum(piece.stop - piece.start for slice in slices for piece in slice)
            for slices in self.microbatches
        ]
        return tuple(Fraction(count, self.size) for count in tokens)


def pack(lengths: Sequence[int], size: int) -> Packing:
    """Sequences of these lengths as slices of at most `size` tokens.

    >>> [str(length) for length in pack([4, 2, 1, 1], 2).lengths]
    ['1', '1', '2']
    """
    _refuse(lengths, size)
    long = [number for number, length in enumerate(lengths) if length > size]
    short = {number: length for number, length in enumerate(lengths) if length <= size}
    packed = [
        (tuple(PackedPiece(number, 0, short[number]) for number in members),)
        for members in _fewest(short, size)
    ]
    return Packing(size, (*packed, *(_cut(number, lengths[number], size) for number in long)))


def _refuse(lengths: Sequence[int], size: int) -> None:
    if size < 1 or not lengths or min(lengths) < 1:
        raise ShapeError(
            f"{len(lengths)} sequences cannot be packed into slices of {size} tokens",
            hint="give at least one sequence, of 1 token or more, and slices of 1 token or more",
        )


def _cut(number: int, length: int, size: int) -> tuple[Slice, ...]:
    starts = range(0, length, size)
    return tuple((PackedPiece(number, start, min(start + size, length)),) for start in starts)


Bins = list[list[int]]
"""Sequences of each slice."""


def _fewest(lengths: Mapping[int, int], size: int) -> Bins:
    """The sequences in as few slices as are found, in the order of their first members."""
    queue = sorted(lengths, key=lambda number: (-lengths[number], number))
    bins: Bins | None = None
    count = -(-sum(lengths.values()) // size)
    while bins is None:
        bins = (
            _greedy(queue, lengths, [size] * count, fullest=-1)
            or _greedy(queue, lengths, [size] * count, fullest=1)
            or _search(queue, lengths, [size] * count)
        )
        count += 1
    return sorted(sorted(members) for members in bins)


def _greedy(
    queue: Sequence[int], lengths: Mapping[int, int], room: list[int], *, fullest: int
) -> Bins | None:
    """Each sequence into the fullest slice that takes it (1), or into the emptiest (-1)."""
    bins: Bins = [[] for _ in room]
    for number in queue:
        fitting = [bin for bin, left in enumerate(room) if left >= lengths[number]]
        if not fitting:
            return None
        chosen = min(fitting, key=lambda bin: fullest * room[bin])
        bins[chosen].append(number)
        room[chosen] -= lengths[number]
    return bins


def _search(queue: Sequence[int], lengths: Mapping[int, int], room: list[int]) -> Bins | None:
    """Every way to place the sequences, up to a number of steps."""
    bins: Bins = [[] for _ in room]
    steps = iter(range(SEARCH_STEPS))

    def place(turn: int) -> bool:
        if turn == len(queue):
            return True
        number = queue[turn]
        # Slices with equal room are one choice.
        choices = {left: bin for bin, left in enumerate(room) if left >= lengths[number]}
        for bin in choices.values():
            if next(steps, None) is None:
                return False
            bins[bin].append(number)
            room[bin] -= lengths[number]
            if place(turn + 1):
                return True
            bins[bin].pop()
            room[bin] += lengths[number]
        return False

    return bins if len(queue) <= SEARCHED_EXACTLY and place(0) else None
