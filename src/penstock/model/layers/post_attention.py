"""What follows attention in a layer: the projection that leads back, the MLP behind its norm."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.linear import Queue, linear, linear_add, linear_backward
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.swiglu import swiglu, swiglu_backward
from penstock.model.layers.views import Matrix, Views


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

    def __init__(self, config: ModelConfig) -> None:
        self.epsilon = config.norm_epsilon

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
    ) -> tuple[Tensor, PostAttentionSaved]:
        """The layer's output, of that of attention and the layer's input."""
        y = linear_add(weights.out, attended, x)
        b, r = norm(weights.norm, y, self.epsilon)
        gate_up = linear(weights.gate_up, b)
        gated = swiglu(gate_up)
        z = linear_add(weights.down, gated, y)
        return z, PostAttentionSaved(y, r, b, gate_up, gated)

    def backward(
        self,
        weights: PostAttentionWeights,
        gradients: PostAttentionWeights,
        attended: Tensor,
        saved: PostAttentionSaved,
        dz: Tensor,
        queue: Queue,
    ) -> tuple[Tensor, Tensor]:
        """The gradients of the output of attention and, past it, of the layer's input."""
        dy = self._mlp_backward(weights, gradients, saved, dz, queue)
        return linear_backward(weights.out, gradients.out, attended, dy, queue), dy

    def _mlp_backward(
        self,
        weights: PostAttentionWeights,
        gradients: PostAttentionWeights,
        saved: PostAttentionSaved,
        dz: Tensor,
        queue: Queue,
    ) -> Tensor:
        """The gradient in front of the MLP and its norm; its large tensors end here."""
        d_gated = linear_backward(weights.down, gradients.down, saved.gated, dz, queue)
        d_gate_up = swiglu_backward(saved.gate_up, d_gated)
        db = linear_backward(weights.gate_up, gradients.gate_up, saved.b, d_gate_up, queue)
        return norm_backward(weights.norm, gradients.norm, saved.y, saved.r, db, dz)
