"""What the attention of a slice asks of those who compute it."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.piece import Piece
from penstock.model.attention.reach import Reach


class AttentionSaved(NamedTuple):
    """What the backward of a slice sees of its forward; keys and values are all in reach."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor


Leave = Callable[[range, Tensor, Tensor], None]
"""Takes gradients of keys before the slice: which keys, dk, dv."""

Fits = Callable[[Tensor, Piece], bool]
"""Whether a kernel serves these queries of that piece."""


class BackEnd(Protocol):
    """Attention of a slice to the keys in its reach, of which the last are its own."""

    @property
    def name(self) -> str: ...

    @property
    def serves(self) -> Fits: ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reach: Reach) -> Output: ...

    def backward(self, g: Tensor, saved: AttentionSaved, reach: Reach, leave: Leave) -> Gradients:
        """Gradients of the slice's own queries, keys and values; those of the past are left."""
        ...
