"""What a stage is told about the slice that it works on."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from torch import Tensor

from penstock.data.batch import Microbatch


class Piece(NamedTuple):
    """One slice of one microbatch; positions count from the start of the sequence."""

    mb: int
    slice: int
    slices: int
    """How many slices the microbatch has."""
    start: int
    end: int
    length: int
    """Tokens of the whole sequence."""
    tokens: Tensor
    """[rows, end - start]"""
    labels: Tensor
    documents: tuple[tuple[int, ...], ...]
    """Where the documents of each row start; the first one at 0."""
    scale: float
    """Weight of one label in the loss: 1 / labels that count in the global batch."""

    @property
    def rows(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def whole(self) -> bool:
        """Whether the slice is the whole sequence, so that nothing before it is kept."""
        return self.slices == 1

    @property
    def packed(self) -> bool:
        """Whether a sequence holds more than one document."""
        return any(len(starts) > 1 for starts in self.documents)


def pieces_of(
    mb: int, microbatch: Microbatch, lengths: Sequence[int], scale: float
) -> tuple[Piece, ...]:
    """The slices of a microbatch, cut to these lengths."""
    ends = tuple(accumulate(lengths))
    starts = (0, *ends[:-1])
    tokens, labels = (_cut(words, ends) for words in (microbatch.tokens, microbatch.labels))
    return tuple(
        Piece(
            mb=mb,
            slice=slice,
            slices=len(ends),
            start=start,
            end=end,
            length=ends[-1],
            tokens=tokens[slice],
            labels=labels[slice],
            documents=microbatch.documents,
            scale=scale,
        )
        for slice, (start, end) in enumerate(zip(starts, ends))
    )


def _cut(words: Tensor, ends: Sequence[int]) -> Sequence[Tensor]:
    return (words,) if len(ends) == 1 else words.tensor_split(ends[:-1], dim=1)
