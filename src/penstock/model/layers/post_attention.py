"""What follows attention in a layer: the projection that leads back, the MLP behind its norm."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.linear import Queue, linear, linear_add, linear_backward
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.swiglu import swiglu, swiglu_backward
from penstock.model.layers.views import Matrix, Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens, wait_for


class PostAttentionWeights(NamedTuple):
    """Weights behind attention, or their gradients."""

    out: Matrix
    norm: Tensor
    gate_up: Matrix
    down: Matrix


class PostAttentionSaved(NamedTuple):
    """What its backward needs, beside the output of attention."""

    y: Tensor
    """The input of the MLP's norm."""
    r: Tensor
    b: Tensor
    """The input of the MLP."""
    gate_up: Tensor
    """Gate and up, side by side."""
    gated: Tensor


class PostAttention:
    """The second part of a layer."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK) -> None:
        self.epsilon, self.tokens = config.norm_epsilon, cell.tokens

    def views(self, views: Views, layer: int) -> PostAttentionWeights:
        prefix = layer_prefix(layer)
        return PostAttentionWeights(
            views.matrix(f"{prefix}self_attn.o_proj"),
            views.vector(f"{prefix}post_attention_layernorm.weight"),
            views.matrix(f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj"),
            views.matrix(f"{prefix}mlp.down_proj"),
        )

    def forward(
        self, weights: PostAttentionWeights, attended: Tensor, x: Tensor
    ) -> Work[tuple[Tensor, PostAttentionSaved]]:
        """The layer's output, of that of attention and the layer's input."""
        count = len(attended)
        y = yield from linear_add(weights.out, attended, x, self.tokens)
        b, r = norm(weights.norm, y, self.epsilon)
        whole = yield from gather_tokens(self.tokens, b, count)
        gate_up = linear(weights.gate_up, whole)
        del whole
        gated = swiglu(gate_up)
        z = yield from linear_add(weights.down, gated, y, self.tokens)
        return z, PostAttentionSaved(y, r, b, gate_up, gated)

    def backward(
        self,
        weights: PostAttentionWeights,
        gradients: PostAttentionWeights,
        attended: Tensor,
        saved: PostAttentionSaved,
        dz: Tensor,
        queue: Queue,
    ) -> Work[tuple[Tensor, Tensor]]:
        """The gradients of the output of attention and, past it, of the layer's input."""
        dy = yield from self._mlp_backward(weights, gradients, saved, dz, queue)
        whole = yield from gather_tokens(self.tokens, dy, len(attended))
        return linear_backward(weights.out, gradients.out, attended, whole, queue), dy

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
        whole = yield from gather_tokens(self.tokens, dz, count)
        b, pending = self.tokens.gather(saved.b, count)
        d_gated = linear_backward(weights.down, gradients.down, saved.gated, whole, queue)
        d_gate_up = swiglu_backward(saved.gate_up, d_gated)
        del whole, d_gated
        yield from wait_for(pending)
        part = linear_backward(weights.gate_up, gradients.gate_up, b, d_gate_up, queue)
        del b, pending, d_gate_up
        db = yield from add_up_tokens(self.tokens, part, queue.meanwhile)
        del part
        return norm_backward(weights.norm, gradients.norm, saved.y, saved.r, db, dz)
