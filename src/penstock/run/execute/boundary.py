"""What moves between two stages: its sizes, so that memory for it can be made before it comes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from penstock.arch.attention_cut import WHOLE_LAYERS, Crossing
from penstock.core.buffers import BUFFERS, Buf
from penstock.model.attention.piece import Piece
from penstock.model.parallel.tokens import TokenShares
from penstock.model.stages.carried_levels import CarriedLevels
from penstock.run.program.calls import Post


class Between(Protocol):
    """What the executor asks about the tensors that move between stages."""

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in."""
        ...

    @property
    def device(self) -> torch.device: ...

    def pattern(self, buf: Buf, piece: Piece) -> Tensor:
        """One element that looks like the whole, for others to be made like it: that takes half
        the time of making one from its sizes."""
        ...


class Boundary(NamedTuple):
    """Between stages that give [rows, tokens, width] of one type, on one device."""

    widths: tuple[int, ...]
    """Features over the boundary behind each stage but the last."""
    dtype: torch.dtype
    device: torch.device

    def pattern(self, buf: Buf, piece: Piece) -> Tensor:
        size = (piece.rows, piece.end - piece.start, self.widths[_crossed(buf)])
        return torch.empty((), dtype=self.dtype, device=self.device).expand(size)


class ModelBoundary(NamedTuple):
    """Between the stages of our models: what a rank hands on of [tokens, hidden]. Where a model is
    cut at its attention, more stands in front of it, all flat."""

    crossings: tuple[Crossing, ...]
    """Over the boundary behind each stage but the last."""
    hidden: int
    tokens: TokenShares
    dtype: torch.dtype
    device: torch.device
    levels: tuple[CarriedLevels | None, ...] = ()
    """What else goes over each, where tokens are left out (model/stages/carried_levels.py)."""

    def pattern(self, buf: Buf, piece: Piece) -> Tensor:
        between = self.levels and buf.name in _BETWEEN_STAGES
        carried = self.levels[_crossed(buf)] if between else None
        if carried is not None:
            flat = (carried.elements(piece),)
            return torch.empty((), dtype=self.dtype, device=self.device).expand(flat)
        count, crossing = piece.tokens.numel(), self.crossings[_crossed(buf)]
        handed = self.tokens.handed(count)
        flat = (crossing.elements(self.hidden, count, handed),)
        size = (handed, self.hidden) if crossing == WHOLE_LAYERS else flat
        return torch.empty((), dtype=self.dtype, device=self.device).expand(size)


class AnyBoundary(NamedTuple):
    """Between stages that may each give a tensor of another size and type."""

    patterns: tuple[Tensor, ...]
    """Behind each stage but the last."""
    gradients: tuple[Tensor, ...]
    """The same of what goes back: of several tensors that move as one, not all have gradients."""
    dtype: torch.dtype
    device: torch.device

    def pattern(self, buf: Buf, piece: Piece) -> Tensor:
        return (self.patterns if buf.name == "x" else self.gradients)[_crossed(buf)]


_BETWEEN_STAGES = ("x", "g")
"""Buffers that go from stage to stage, and not to or from shards of the vocabulary."""


def _crossed(buf: Buf) -> int:
    """The boundary over which a stage's input moves, or the gradient of its output."""
    return buf.number - (buf.name == "x")


class Landings:
    """Makes the memory that a transfer is received into; a plan's units keep their sizes."""

    def __init__(self, boundary: Between) -> None:
        self._boundary = boundary
        self._patterns: dict[int, Tensor] = {}

    def empty(self, post: Post, pieces: Sequence[Piece]) -> Tensor:
        """Memory of its own for each transfer: what is received may outlive its slot."""
        if post.tag not in self._patterns:
            self._patterns[post.tag] = self._pattern(post, pieces)
        return torch.empty_like(self._patterns[post.tag])

    def forget(self) -> None:
        """Units have other sizes from here on."""
        self._patterns.clear()

    def _pattern(self, post: Post, pieces: Sequence[Piece]) -> Tensor:
        """What looks like the whole: one element where nothing travels but the message that a
        buffer is there."""
        if not BUFFERS[post.buf.name].crosses:
            return order_token(self._boundary.device)
        return self._boundary.pattern(post.buf, pieces[post.unit])


def order_token(device: torch.device) -> Tensor:
    """What an order between devices is told with."""
    return torch.zeros(1, device=device)
