"""Which rows of a microbatch are computed together.

Rows may hold different documents, and a kernel for triangles and rectangles wants the same ones in
all rows of a call.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.model.attention.piece import Piece
from penstock.model.attention.reach import Reach, reach_of


class Group(NamedTuple):
    """Rows whose documents begin at the same positions."""

    rows: range
    reach: Reach

    def of(self, tensor: Tensor) -> Tensor:
        return tensor[self.rows.start : self.rows.stop]

    def keys(self, tensor: Tensor, piece: Piece) -> Tensor:
        """The keys in reach."""
        return self.of(tensor)[:, :, piece.start - self.reach.past : piece.end]


def row_groups(piece: Piece, window: int | None = None) -> list[Group]:
    """All rows at once where they have the same documents, else each by itself, with the keys that
    are attended to here."""
    if piece.loans is None or window is not None:  # nothing of a window is lent
        return document_groups(piece, window)
    most = piece.start - piece.loans.kept_from
    return [
        group._replace(reach=group.reach._replace(past=min(group.reach.past, most)))
        for group in document_groups(piece)
    ]


def document_groups(piece: Piece, window: int | None = None) -> list[Group]:
    """The same with all keys that their documents have."""
    rows, ends = piece.rows, (piece.start, piece.end)
    step = rows if len(set(piece.documents)) == 1 else 1
    return [
        Group(range(row, row + step), reach_of(*ends, piece.documents[row], window))
        for row in range(0, rows, step)
    ]


def join_rows(rows: Sequence[Tensor]) -> Tensor:
    """Rows joined again, token by token in memory; those that were not parted stay as they are."""
    if len(rows) == 1:
        return rows[0]
    return torch.cat([each.transpose(1, 2) for each in rows]).transpose(1, 2)
