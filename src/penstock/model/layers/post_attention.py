"""What follows attention in a layer: the projection that leads back, and the MLP.

Norms stand in front of the MLP, behind the projection and the MLP, or in both places, as the model
has them. One behind a block needs the whole sum of ranks that share the block's matrices.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import MLP_NORM, ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.linear import Queue, linear, linear_add, linear_backward
from penstock.model.layers.norm import RmsNorm
from penstock.model.layers.swiglu import GATES
from penstock.model.layers.views import Matrix, Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens, wait_for


class WayBack(NamedTuple):
    """A matrix that leads back to the residual, and the norm behind it where there is one; or
    their gradients."""

    matrix: Matrix
    norm: Tensor | None


class PostAttentionWeights(NamedTuple):
    """Weights behind attention, or their gradients."""

    out: WayBack
    norm: Tensor | None
    """In front of the MLP."""
    gate_up: Matrix
    down: WayBack


class NormedBack(NamedTuple):
    """What a norm behind a matrix keeps."""

    x: Tensor
    r: Tensor


class PostAttentionSaved(NamedTuple):
    """What its backward needs, beside the output of attention."""

    out: NormedBack | None
    y: Tensor
    """The input of the MLP's norm."""
    r: Tensor | None
    b: Tensor
    """The input of the MLP."""
    gate_up: Tensor
    """Gate and up, side by side."""
    gated: Tensor
    down: NormedBack | None


class PostAttention:
    """The second part of a layer."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK) -> None:
        self.norm, self.tokens = RmsNorm(config), cell.tokens
        self.gate = GATES[config.activation]
        self.norm_name = MLP_NORM[config.norms]
        self.ends = [f"post_{block}_layernorm.weight" for block in ("attention", "feedforward")]
        self.has_ends = config.norms != "before"

    def views(self, views: Views, layer: int) -> PostAttentionWeights:
        prefix = layer_prefix(layer)
        matrices = [views.matrix(f"{prefix}self_attn.o_proj")]
        gate_up = views.matrix(f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj")
        matrices.append(views.matrix(f"{prefix}mlp.down_proj"))
        norms = [views.vector(prefix + name) if self.has_ends else None for name in self.ends]
        out, down = (WayBack(*each) for each in zip(matrices, norms))
        before = views.vector(f"{prefix}{self.norm_name}.weight") if self.norm_name else None
        return PostAttentionWeights(out, before, gate_up, down)

    def forward(
        self, weights: PostAttentionWeights, attended: Tensor, x: Tensor
    ) -> Work[tuple[Tensor, PostAttentionSaved]]:
        """The layer's output, of that of attention and the layer's input."""
        count = len(attended)
        y, out = yield from self._add_back(weights.out, attended, x)
        b, r = (y, None) if weights.norm is None else self.norm.forward(weights.norm, y)
        whole = yield from gather_tokens(self.tokens, b, count)
        gate_up = linear(weights.gate_up, whole)
        del whole
        gated = self.gate.forward(gate_up)
        z, down = yield from self._add_back(weights.down, gated, y)
        return z, PostAttentionSaved(out, y, r, b, gate_up, gated, down)

    def _add_back(
        self, weights: WayBack, x: Tensor, residual: Tensor
    ) -> Work[tuple[Tensor, NormedBack | None]]:
        """The residual plus what a block gives, and what the norm behind it keeps."""
        if weights.norm is None:
            return (yield from linear_add(weights.matrix, x, residual, self.tokens)), None
        given = yield from add_up_tokens(self.tokens, linear(weights.matrix, x))
        normed, r = self.norm.forward(weights.norm, given)
        return normed.add_(residual), NormedBack(given, r)

    def backward(
        self,
        weights: PostAttentionWeights,
        gradients: PostAttentionWeights,
        attended: Tensor,
        saved: PostAttentionSaved,
        dz: Tensor,
        queue: Queue,
        slope: Tensor | None = None,
    ) -> Work[tuple[Tensor, Tensor]]:
        """The gradients of the output of attention and, past it, of the layer's input."""
        dy = yield from self._mlp_backward(weights, gradients, saved, dz, queue)
        given = self._through_end(weights.out, gradients.out, saved.out, dy)
        whole = yield from gather_tokens(self.tokens, given, len(attended))
        d = linear_backward(weights.out.matrix, gradients.out.matrix, attended, whole, queue)
        return d, dy

    def _through_end(
        self, weights: WayBack, gradients: WayBack, saved: NormedBack | None, d: Tensor
    ) -> Tensor:
        """The gradient of what a matrix gave, where a norm follows it."""
        if weights.norm is None or gradients.norm is None or saved is None:
            return d
        return self.norm.backward(weights.norm, gradients.norm, saved.x, saved.r, d)

    def _mlp_backward(
        self,
        weights: PostAttentionWeights,
        gradients: PostAttentionWeights,
        saved: PostAttentionSaved,
        dz: Tensor,
        queue: Queue,
    ) -> Work[Tensor]:
        """The gradient in front of the MLP and its norm; its large tensors end here."""
        count = len(saved.gated)
        given = self._through_end(weights.down, gradients.down, saved.down, dz)
        whole = yield from gather_tokens(self.tokens, given, count)
        del given
        b, pending = self.tokens.gather(saved.b, count)
        down, d_down = weights.down.matrix, gradients.down.matrix
        d_gated = linear_backward(down, d_down, saved.gated, whole, queue)
        d_gate_up = self.gate.backward(saved.gate_up, d_gated)
        del whole, d_gated
        yield from wait_for(pending)
        part = linear_backward(weights.gate_up, gradients.gate_up, b, d_gate_up, queue)
        del b, pending, d_gate_up
        db = yield from add_up_tokens(self.tokens, part, queue.meanwhile)
        del part
        if weights.norm is None or gradients.norm is None or saved.r is None:
            return db.add_(dz)
        return self.norm.backward(weights.norm, gradients.norm, saved.y, saved.r, db, dz)
