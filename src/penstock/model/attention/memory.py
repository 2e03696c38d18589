"""Keys and values of one microbatch on one stage, and the gradients that slices leave each other.

Later slices read what earlier ones wrote, and in the backward earlier slices take what later ones
left. Both live in buffers of the whole sequence, so nothing is joined or copied as it grows.

Gradients are neither allocated nor filled before they are needed: the first slice that reaches a
key stores, the others add. Backwards run from the last slice to the first, so what has been stored
of a sequence is always one run that ends at the current slice; `low` is where it begins.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.attention.piece import Piece


class KeyValues:
    """Keys and values of all layers of a stage, each [rows, kv_heads, length, head_size]."""

    def __init__(
        self,
        layers: int,
        rows: int,
        kv_heads: int,
        length: int,
        head_size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (layers, rows, kv_heads, length, head_size)
        self.keys = torch.empty(shape, dtype=dtype, device=device).unbind()
        self.values = torch.empty(shape, dtype=dtype, device=device).unbind()
        self.gradients: KeyValueGradients | None = None
        self.loads: Tensor | None = None
        """Of experts, where this is the last stage of a model that has some."""

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, gradients apart."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def write(self, layer: int, piece: Piece, k: Tensor, v: Tensor) -> None:
        """Store the keys and values of a slice."""
        here = slice(piece.start, piece.end)
        self.keys[layer][:, :, here].copy_(k.detach())
        self.values[layer][:, :, here].copy_(v.detach())

    def open_gradients(self) -> "KeyValueGradients":
        """Begin the backward of the microbatch, before that of its last slice."""
        self.gradients = KeyValueGradients(self)
        return self.gradients

    def close_gradients(self) -> None:
        """End the backward of the microbatch, after that of its first slice."""
        self.gradients = None


class KeyValueGradients:
    """Gradients of keys and values of earlier slices, as far as later ones have left them.

    A layer's buffer is allocated by the first slice that reaches back in it, and is as long as that
    slice's past: slices before it reach less far.
    """

    def __init__(self, memory: KeyValues) -> None:
        self.keys: list[Tensor | None] = [None] * len(memory.keys)
        self.values: list[Tensor | None] = [None] * len(memory.keys)
        rows, _, length, _ = memory.keys[0].shape
        self._low = [[length] * rows for _ in memory.keys]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers that are allocated."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values) if tensor is not None)

    def low(self, layer: int, row: int) -> int:
        """The first position of that row that later slices have left a gradient for."""
        return self._low[layer][row]

    def settle(self, layer: int, rows: range, first: int) -> None:
        """Note that everything from `first` to the slice at work is stored."""
        for row in rows:
            self._low[layer][row] = min(first, self._low[layer][row])

    def reserve(self, layer: int, like: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """The layer's buffers; new ones reach to `length`."""
        keys, values = self.keys[layer], self.values[layer]
        if keys is None or values is None:
            rows, heads, _, size = like.shape
            keys = self.keys[layer] = like.new_empty(rows, heads, length, size)
            values = self.values[layer] = like.new_empty(rows, heads, length, size)
        return keys, values


class Relay(NamedTuple):
    """What one slice's backward leaves to earlier slices and takes from later ones, in one layer.

    It serves rows whose documents begin at the same positions.
    """

    memory: KeyValues
    layer: int
    rows: range
    piece: Piece
    past: int
    """Keys before the slice that it reaches."""

    @property
    def gradients(self) -> KeyValueGradients:
        gradients = self.memory.gradients
        if gradients is None:
            raise RunError(
                f"slice {self.piece.slice} of microbatch {self.piece.mb} has nowhere to leave "
                f"the gradients of its keys and values in layer {self.layer}",
                hint="call open_gradients() before the backward of the microbatch's last slice",
            )
        return gradients

    @property
    def low(self) -> int:
        return self.gradients.low(self.layer, self.rows.start)

    def leave(self, keys: range, dk: Tensor, dv: Tensor) -> None:
        """Hand gradients of past keys, which count from the first in reach, to earlier slices."""
        if self._all(keys, dk) and self.gradients.keys[self.layer] is None:
            self.gradients.keys[self.layer], self.gradients.values[self.layer] = dk, dv
            return  # they are as large as buffers would be: the copy is saved
        first = self.piece.start - self.past
        stored = min(max(self.low - first - keys.start, 0), len(keys))
        here = slice(keys.start + first, keys.stop + first)
        buffers = self.gradients.reserve(self.layer, self.memory.keys[self.layer], self.piece.start)
        for buffer, new in zip(buffers, (dk, dv)):
            into = buffer[self.rows.start : self.rows.stop, :, here]
            into[:, :, :stored].copy_(new[:, :, :stored])
            into[:, :, stored:].add_(new[:, :, stored:])

    def _all(self, keys: range, dk: Tensor) -> bool:
        """Whether gradients are those of all positions before the slice, of all rows."""
        rows = len(self.memory.keys[self.layer])
        return len(keys) == self.past == self.piece.start and len(dk) == rows == len(self.rows)

    def take(self, dk: Tensor, dv: Tensor) -> None:
        """Add to the slice's own gradients what later slices left, once all of its own is left."""
        start, low = self.piece.start, self.low
        begin = max(start, low)
        buffers = self.gradients.keys[self.layer], self.gradients.values[self.layer]
        for buffer, own in zip(buffers, (dk, dv)):
            if buffer is not None and begin < self.piece.end:
                left = buffer[self.rows.start : self.rows.stop, :, begin : self.piece.end]
                own[:, :, begin - start :].add_(left)
        self.gradients.settle(self.layer, self.rows, start - self.past)
