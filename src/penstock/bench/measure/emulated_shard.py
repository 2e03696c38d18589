"""A vocabulary shard that waits, and how anything waits that is emulated."""

from collections.abc import Mapping
from time import perf_counter, sleep

import torch
from torch import Tensor

from penstock.core.ops import Op
from penstock.model.attention.piece import Piece

Waits = Mapping[Op, float]
"""Seconds of every op."""


class EmulatedShard:
    """A vocabulary shard that waits."""

    def __init__(self, shard: int, waits: Waits, spin: float) -> None:
        self.shard, self.waits, self.spin = shard, waits, spin

    def embed(self, weights: None, piece: Piece) -> Tensor:
        return self._wait("E", piece)

    def embed_backward(self, gradients: None, piece: Piece, gin: Tensor) -> None:
        self._wait("D", piece)

    def first_pass(
        self, weights: None, piece: Piece, out: Tensor
    ) -> tuple[Tensor, None, Tensor | None]:
        return self._wait("S", piece), None, None

    def first_pass_with_gradient(
        self, weights: None, piece: Piece, out: Tensor
    ) -> tuple[Tensor, None, Tensor | None]:
        return self._wait("S", piece), None, slice_number(piece)

    def second_pass(self, gradients: None, piece: Piece, saved: None, merged: Tensor) -> Tensor:
        return self._wait("T", piece)

    def output_gradient(self, weights: None, d_logits: Tensor) -> Tensor:
        return d_logits

    def loss(self, piece: Piece, merged: Tensor) -> Tensor:
        return slice_number(piece)

    def _wait(self, kind: str, piece: Piece) -> Tensor:
        wait(self.waits[Op(kind, self.shard, piece.mb, piece.slice)], self.spin)
        return slice_number(piece)


def wait(seconds: float, spin: float) -> None:
    """Return after that time. A sleep ends late: the last `spin` seconds are spun instead, where
    there is a core for every rank."""
    end = perf_counter() + seconds
    sleep(max(0.0, seconds - spin))
    while perf_counter() < end:
        sleep(0)


def slice_number(piece: Piece) -> Tensor:
    return torch.zeros(1, piece.end - piece.start, 1)
