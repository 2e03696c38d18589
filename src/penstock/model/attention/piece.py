"""What a stage is told about the slice that it works on."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.data.batch import Microbatch
from penstock.model.attention.op_loans import OpLoans
from penstock.model.attention.piece_levels import PieceLevels
from penstock.model.parallel.group import RankGroup


class PieceSharers(NamedTuple):
    """Ranks of a cell that share the tokens of a microbatch, while others work on other ones."""

    exchange: RankGroup | None
    """Those that exchange tokens for heads; None for a rank that has its tokens to itself."""


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
    """[rows, end - start], or those of its own positions."""
    labels: Tensor
    documents: tuple[tuple[int, ...], ...]
    """Where the documents of each row start; the first one at 0."""
    scale: float
    """Weight of one label in the loss: 1 / labels that count in the global batch."""
    own: tuple[range, ...] = ()
    """Positions whose tokens and labels are here, where ranks share the slice; else all of it."""
    sharers: PieceSharers | None = None
    """The ranks that share it, where ranks of a cell form groups; else all that exchange."""
    loans: OpLoans | None = None
    """Those of the op that works on it, if it lends attention work or helps with it."""
    share: float = 1.0
    """Weight of the whole microbatch in the loss: its labels that count, of the global batch's."""
    levels: PieceLevels | None = None
    """How many tokens are kept, where a model leaves out some."""

    @property
    def rows(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def positions(self) -> tuple[range, ...]:
        """Where the tokens that are here stand in the sequence."""
        return self.own or (range(self.start, self.end),)

    @property
    def whole(self) -> bool:
        """Whether the slice is the whole sequence, so that nothing before it is kept."""
        return self.slices == 1

    @property
    def packed(self) -> bool:
        """Whether a sequence holds more than one document."""
        return any(len(starts) > 1 for starts in self.documents)

    def exchanging(self, usual: RankGroup | None) -> RankGroup | None:
        """The ranks that exchange its tokens for heads, where it has no groups the usual ones."""
        return self.sharers.exchange if self.sharers else usual


def pieces_of(
    mb: int, microbatch: Microbatch, lengths: Sequence[int], scale: float
) -> tuple[Piece, ...]:
    """The slices of a microbatch, cut to these lengths."""
    tokens, labels, documents = microbatch.tokens, microbatch.labels, microbatch.documents
    if len(lengths) == 1:  # the usual case of generic modules, whose host time is watched
        length = lengths[0]
        return (Piece(mb, 0, 1, 0, length, length, tokens, labels, documents, scale),)
    ends = tuple(accumulate(lengths))
    cut_tokens, cut_labels = (words.tensor_split(ends[:-1], dim=1) for words in (tokens, labels))
    return tuple(
        Piece(mb, slice, len(ends), end - size, end, ends[-1], own, wanted, documents, scale)
        for slice, (size, end, own, wanted) in enumerate(zip(lengths, ends, cut_tokens, cut_labels))
    )


def take_tokens(piece: Piece, span: range) -> Microbatch:
    """Some whole documents of a piece that is one whole sequence, as a sequence of their own."""
    inside = slice(span.start, span.stop)
    documents = tuple(
        tuple(start - span.start for start in starts if start in span) or (0,)
        for starts in piece.documents
    )
    return Microbatch(piece.tokens[:, inside], piece.labels[:, inside], documents)


def take_positions(piece: Piece, own: tuple[range, ...]) -> Piece:
    """The piece with the tokens and labels at some of its positions."""
    cuts = [slice(each.start - piece.start, each.stop - piece.start) for each in own]
    tokens, labels = (
        torch.cat([words[:, cut] for cut in cuts], dim=1) for words in (piece.tokens, piece.labels)
    )
    return piece._replace(tokens=tokens, labels=labels, own=own)
