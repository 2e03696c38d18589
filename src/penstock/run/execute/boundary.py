"""What moves between two stages: its sizes, so that memory for it can be made before it comes."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.core.buffers import Buf
from penstock.model.attention.piece import Piece
from penstock.run.program.calls import Post


class Boundary(NamedTuple):
    """What moves between two stages: [rows, tokens, width] of one type, on one device."""

    widths: tuple[int, ...]
    """Features over the boundary behind each stage but the last."""
    dtype: torch.dtype
    device: torch.device

    def width(self, buf: Buf) -> int:
        """Of a stage's input, or of the gradient of its output."""
        return self.widths[buf.number - (buf.name == "x")]

    def pattern(self, piece: Piece, width: int) -> Tensor:
        """One element that looks like the whole, for others to be made like it: that takes half
        the time of making one from its sizes."""
        size = (piece.rows, piece.end - piece.start, width)
        return torch.empty((), dtype=self.dtype, device=self.device).expand(size)


class Landings:
    """Makes the memory that a transfer is received into; a plan's units keep their sizes."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._patterns: dict[int, Tensor] = {}

    def empty(self, post: Post, pieces: Sequence[Piece]) -> Tensor:
        """Memory of its own for each transfer: what is received may outlive its slot."""
        if post.tag not in self._patterns:
            width = self._boundary.width(post.buf)
            self._patterns[post.tag] = self._boundary.pattern(pieces[post.unit], width)
        return torch.empty_like(self._patterns[post.tag])
