"""What the runtime asks of a stage: the work of F, N, R, I, W and B, without when and where.

Where a device is several ranks, the work of an op waits for the others: it is a generator then, and
a plain call where a rank is alone.

A stage owns no tensors. Weights, gradients and everything that belongs to one slice go in and come
out, so that the program alone decides which buffer an op reads and how long a value lives.
"""

from typing import Any, Protocol

from torch import Tensor

from penstock.model.attention.piece import Piece
from penstock.model.parallel.group import WorkOrResult

Forward = tuple[Tensor | None, Any, Any]
"""What a forward leaves behind, a plain tuple because two are made for every op:

- the next stage's input, [tokens, hidden] or flat; None of the last stage, whose loss belongs to
  its backward;
- what the backward needs;
- keys and values of the microbatch so far; None where a stage has none.
"""

Backward = tuple[Tensor | None, Any, Any, Tensor | None]
"""What an input gradient leaves behind:

- the gradient of the stage's input; None for the first stage, which has none;
- gradients of keys and values that earlier slices have still to take;
- what the weight gradient needs;
- the summed loss of the slice, of the last stage; None of the others.
"""


class Viewing(Protocol):
    """Whoever works with weights: a stage, or a shard of the vocabulary."""

    def views(self, flat: Tensor, frozen: Tensor | None = None) -> Any:
        """A flat buffer of its parameters as its layers take it, with the values of those that are
        frozen, which have no gradients. Called once per buffer, never per op: a view costs as much
        as a small kernel."""
        ...


class Stage(Viewing, Protocol):
    """One stage's work on one piece.

    `weights` and `gradients` are what `views` made of a buffer of values and of one of gradients.
    """

    def forward(
        self, weights: Any, piece: Piece, x: Tensor | None, kv: Any
    ) -> WorkOrResult[Forward]:
        """Compute the output and keep what the backward needs."""
        ...

    def forward_light(
        self, weights: Any, piece: Piece, x: Tensor | None, kv: Any
    ) -> WorkOrResult[Forward]:
        """Compute the output and keep only the input, to compute again from it."""
        ...

    def evaluate(
        self, weights: Any, piece: Piece, x: Tensor | None, kv: Any
    ) -> WorkOrResult[Forward]:
        """Compute the output, or the summed loss of the last stage, and keep nothing."""
        ...

    def recompute(self, weights: Any, piece: Piece, ckpt: Any, kv: Any) -> Any:
        """What `forward` would have kept, from what `forward_light` kept."""
        ...

    def input_gradient(
        self,
        weights: Any,
        gradients: Any,
        piece: Piece,
        act: Any,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> WorkOrResult[Backward]:
        """The gradient of the input; the last stage starts from its own loss and takes no `g`."""
        ...

    def backward(
        self,
        weights: Any,
        gradients: Any,
        piece: Piece,
        act: Any,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> WorkOrResult[Backward]:
        """Both gradients, and no stash. What it adds to a weight must be what `input_gradient` and
        `weight_gradient` add, in the same order, bit for bit."""
        ...

    def weight_gradient(self, gradients: Any, piece: Piece, stash: Any) -> None:
        """Add to `gradients` what `input_gradient` left over."""
        ...
