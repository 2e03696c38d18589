"""What stands in front of attention in a layer: a norm, and the projection to queries, keys and
values."""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.linear import Queue
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.qkv_projection import HeadNormsSaved, QkvProjection, QkvWeights
from penstock.model.layers.views import Views


class PreAttentionWeights(NamedTuple):
    """Weights in front of attention, or their gradients."""

    norm: Tensor
    projection: QkvWeights


class PreAttentionSaved(NamedTuple):
    """What is kept in front of attention."""

    x: Tensor
    r: Tensor
    a: Tensor
    """The normed input."""
    norms: HeadNormsSaved | None


class PreAttention:
    """The first part of a layer, up to queries, keys and values."""

    def __init__(self, config: ModelConfig) -> None:
        self.epsilon = config.norm_epsilon
        self.projection = QkvProjection(config)

    def views(self, views: Views, layer: int) -> PreAttentionWeights:
        prefix = layer_prefix(layer)
        return PreAttentionWeights(
            views.vector(f"{prefix}input_layernorm.weight"),
            self.projection.views(views, f"{prefix}self_attn."),
        )

    def forward(
        self, weights: PreAttentionWeights, x: Tensor, rows: int
    ) -> tuple[Tensor, PreAttentionSaved]:
        """Queries, keys, values and the input, side by side."""
        a, r = norm(weights.norm, x, self.epsilon)
        heads, norms = self.projection.forward(weights.projection, a, rows)
        flat = [part.reshape(len(x), -1) for part in heads]
        return torch.cat((*flat, x), dim=1), PreAttentionSaved(x, r, a, norms)

    def backward(
        self,
        weights: PreAttentionWeights,
        gradients: PreAttentionWeights,
        saved: PreAttentionSaved,
        d: Tensor,
        rows: int,
        queue: Queue,
    ) -> Tensor:
        """The gradient of the input; `d` is that of the four, side by side."""
        width = d.shape[1] - saved.x.shape[1]
        da = self.projection.backward(
            weights.projection,
            gradients.projection,
            saved.a,
            saved.norms,
            d[:, :width].contiguous(),
            rows,
            queue,
        )
        dx = norm_backward(weights.norm, gradients.norm, saved.x, saved.r, da)
        return dx.add_(d[:, width:])
