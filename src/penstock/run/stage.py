"""What the executor asks of a stage: the work of F, N, R, I and W, without when and where.

A stage holds weights and their gradients; everything that belongs to one slice goes in and comes
out, so that the program alone decides how long it lives.
"""

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from penstock.model.piece import Piece


class Forward(NamedTuple):
    """What a forward leaves behind."""

    out: Tensor
    """The next stage's input [rows, tokens, hidden], or the summed loss of the last stage."""
    act: Any
    """What the backward needs."""
    kv: Any
    """Keys and values of the microbatch so far; None where a stage has none."""


class Backward(NamedTuple):
    """What an input gradient leaves behind."""

    g: Tensor | None
    """Gradient of the stage's input; None for the first stage, which has none."""
    dkv: Any
    """Gradients of keys and values that earlier slices have still to take."""
    stash: Any
    """What the weight gradient needs."""


class Stage(Protocol):
    """One stage's work on one piece."""

    def forward(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        """Compute the output and keep what the backward needs."""
        ...

    def forward_light(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        """Compute the output and keep only the input, to compute again from it."""
        ...

    def recompute(self, piece: Piece, ckpt: Any, kv: Any) -> Any:
        """What `forward` would have kept, from what `forward_light` kept."""
        ...

    def input_gradient(
        self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any
    ) -> Backward:
        """The gradient of the input; the last stage starts from its own loss and takes no `g`."""
        ...

    def backward(self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Backward:
        """Both gradients, and no stash. What it adds to a weight must be what `input_gradient` and
        `weight_gradient` add, in the same order, bit for bit."""
        ...

    def weight_gradient(self, piece: Piece, stash: Any) -> None:
        """Add the gradients of the weights that `input_gradient` left over."""
        ...
