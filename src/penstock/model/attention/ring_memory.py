"""Keys and values of one microbatch on one rank of a ring: those of its own tokens only.

They lie token by token, [tokens, rows, kv_heads, head_size], those of later slices behind those of
earlier ones. So what a rank has of all slices up to one is a run of memory, which is sent to the
next rank as it is.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.attention.piece import Piece


class KeyValueBlock(NamedTuple):
    """Keys and values of some tokens, or gradients of them: [tokens, rows, kv_heads, size]."""

    keys: Tensor
    values: Tensor

    @classmethod
    def of(cls, k: Tensor, v: Tensor) -> "KeyValueBlock":
        """From [rows, kv_heads, tokens, size]; what lies token by token is not copied."""
        return cls(*(x.detach().permute(2, 0, 1, 3).contiguous() for x in (k, v)))

    @property
    def tokens(self) -> int:
        return len(self.keys)

    def cut(self, start: int, end: int) -> "KeyValueBlock":
        return KeyValueBlock(self.keys[start:end], self.values[start:end])

    def by_head(self) -> tuple[Tensor, Tensor]:
        """As views [rows, kv_heads, tokens, size], which is how attention takes them."""
        return self.keys.permute(1, 2, 0, 3), self.values.permute(1, 2, 0, 3)

    def zeros(self) -> "KeyValueBlock":
        """Room for gradients."""
        return KeyValueBlock(torch.zeros_like(self.keys), torch.zeros_like(self.values))

    def none(self) -> "KeyValueBlock":
        """No tokens, and no hold on the memory of these."""
        return KeyValueBlock(*(x.new_empty((0, *x.shape[1:])) for x in self))

    def add_at_end(self, other: "KeyValueBlock") -> None:
        """Add what belongs to the last tokens."""
        for into, new in zip(self, other):
            into[len(into) - len(new) :].add_(new)


class KeptSlice(NamedTuple):
    """A slice of which the rank has some tokens."""

    start: int
    end: int
    own: range
    """Which of the kept tokens are the slice's."""


class RingMemory:
    """A rank's keys and values in all layers of a stage; slices are written in their order."""

    def __init__(
        self,
        layers: int,
        rows: int,
        kv_heads: int,
        tokens: int,
        head_size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """`tokens` is how many the rank has at most, of all slices."""
        shape = (layers, tokens, rows, kv_heads, head_size)
        self._keys = torch.empty(shape, dtype=dtype, device=device)
        self._values = torch.empty_like(self._keys)
        self._slices: list[KeptSlice] = []
        self.gradients: RingGradients | None = None
        self.loads: Tensor | None = None
        """Of experts, where this is the last stage of a model that has some."""

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, gradients apart."""
        return self._keys.nbytes + self._values.nbytes

    def write(self, layer: int, piece: Piece, k: Tensor, v: Tensor) -> None:
        """Store the keys and values that the rank has of a slice, [rows, kv_heads, own, size]."""
        if piece.slice == len(self._slices):
            self._slices.append(self._place(piece, k.shape[2]))
        for kept, new in zip(self.own(layer, piece), (k, v)):
            kept.copy_(new.detach())

    def _place(self, piece: Piece, tokens: int) -> KeptSlice:
        """Where the tokens of a new slice are kept."""
        first, room = self._slices[-1].own.stop if self._slices else 0, self._keys.shape[1]
        if first + tokens > room:
            raise RunError(
                f"{tokens} tokens of slice {piece.slice} of microbatch {piece.mb} come after "
                f"{first}, and there is room for {room}",
                hint="make the memory for most_tokens() of the sequence",
            )
        return KeptSlice(piece.start, piece.end, range(first, first + tokens))

    def kept(self, piece: Piece) -> list[KeptSlice]:
        """The slices up to this one."""
        if piece.slice >= len(self._slices):
            raise RunError(
                f"slice {piece.slice} of microbatch {piece.mb} comes to a memory that has "
                f"{len(self._slices)} slices",
                hint="write the keys and values of all slices in their order",
            )
        return self._slices[: piece.slice + 1]

    def own(self, layer: int, piece: Piece) -> tuple[Tensor, Tensor]:
        """The slice's keys and values where they stay, [rows, kv_heads, own, size]."""
        own = self.kept(piece)[-1].own
        return self._run(layer, own).by_head()

    def last(self, layer: int, piece: Piece, tokens: int) -> KeyValueBlock:
        """So many tokens, of which the last is the last one of the slice."""
        end = self.kept(piece)[-1].own.stop
        return self._run(layer, range(end - tokens, end))

    def _run(self, layer: int, tokens: range) -> KeyValueBlock:
        whole = KeyValueBlock(self._keys[layer], self._values[layer])
        return whole.cut(tokens.start, tokens.stop)

    def open_gradients(self) -> "RingGradients":
        """Begin the backward of the microbatch, before that of its last slice."""
        self.gradients = RingGradients(len(self._keys))
        return self.gradients

    def close_gradients(self) -> None:
        """End the backward of the microbatch, after that of its first slice."""
        self.gradients = None


class RingGradients:
    """Gradients of a rank's keys and values of earlier slices, as far as later ones have left them.

    A slice's backward brings those of its own tokens and of a run before them. What later slices
    left ends at the same token, so the shorter of the two is added at the end of the longer.
    """

    def __init__(self, layers: int) -> None:
        self._left: list[KeyValueBlock | None] = [None] * layers

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors())

    def _tensors(self) -> Iterator[Tensor]:
        return (tensor for block in self._left if block is not None for tensor in block)

    def settle(self, layer: int, new: KeyValueBlock, own: int) -> KeyValueBlock:
        """Those of the slice's own tokens, which are the last ones; those before are kept."""
        left = self._left[layer]
        total, other = (new, left) if left is None or left.tokens <= new.tokens else (left, new)
        if other is not None:
            total.add_at_end(other)
        past = total.tokens - own
        # A copy: as a view it would keep the slice's own ones until the slice before it comes.
        kept = KeyValueBlock(*(x.clone() for x in total.cut(0, past)))
        self._left[layer] = kept if past else None
        return total.cut(past, total.tokens)
