"""The slices of a batch, told how many of their tokens a model keeps, and when they are trained on.

Each slice keeps its own share of its tokens: a sequence in one slice is selected from as a whole,
one in k slices slice by slice.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.arch.draws import Moment
from penstock.arch.subsampling import Subsampling
from penstock.data.batch import IGNORE, Microbatch
from penstock.model.attention.piece import Piece
from penstock.model.attention.piece_levels import PieceLevels


def with_levels(
    pieces: Sequence[Piece],
    batch: Sequence[Microbatch],
    lengths: Sequence[Sequence[int]],
    subsampling: Subsampling,
) -> list[Piece]:
    """The pieces of a batch, each with what it keeps on every level."""
    spans = [subsampling.spans(own) for own in lengths]
    padding = [padding_of(microbatch) for microbatch in batch]
    found = []
    for piece in pieces:
        never = padding[piece.mb]
        if never is not None:
            never = never[:, piece.start : piece.end].to(piece.tokens.device)
        levels = PieceLevels(spans[piece.mb][piece.slice], padding=never)
        found.append(piece._replace(levels=levels))
    return found


def with_moment(
    pieces: Sequence[Piece], subsampling: Subsampling, step: int, first: int
) -> list[Piece]:
    """The pieces as a training step works on them: `step` updates came before, and `first` is the
    number of the first microbatch among those of all replicas."""
    found = []
    for piece in pieces:
        assert piece.levels is not None  # cut for this model
        moment = Moment(subsampling.seed, step, first + piece.mb)
        found.append(piece._replace(levels=piece.levels._replace(moment=moment)))
    return found


def padding_of(microbatch: Microbatch) -> Tensor | None:
    """Tokens of documents in which no label counts, [rows, length]: what fills up sequences, and
    reaches no loss. None where there are none."""
    counts, found = (microbatch.labels != IGNORE).cpu(), None
    for row, starts in enumerate(microbatch.documents):
        for start, end in zip(starts, (*starts[1:], microbatch.length)):
            if len(starts) > 1 and not counts[row, start:end].any():
                found = torch.zeros_like(counts) if found is None else found
                found[row, start:end] = True
    return found
