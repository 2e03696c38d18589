"""What stands in front of attention in a layer: a norm in most models, and the projection to
queries, keys and values."""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.layers.norm import AFTER
from penstock.arch.parameters import layer_prefix
from penstock.model.attention.piece import Piece
from penstock.model.layers.linear import Queue
from penstock.model.layers.norm import RmsNorm
from penstock.model.layers.qkv_projection import HeadNormsSaved, QkvProjection, QkvWeights
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens


class PreAttentionWeights(NamedTuple):
    """Weights in front of attention, or their gradients."""

    norm: Tensor | None
    projection: QkvWeights


class PreAttentionSaved(NamedTuple):
    """What is kept in front of attention."""

    x: Tensor
    r: Tensor | None
    a: Tensor
    """The normed input, or the input where no norm stands in front."""
    norms: HeadNormsSaved | None


class InputNorm:
    """The norm in front of attention; nothing where a model has none there."""

    def __init__(self, config: ModelConfig) -> None:
        self.norm, self.exists = RmsNorm(config), config.norms != AFTER

    def view(self, views: Views, prefix: str) -> Tensor | None:
        return views.vector(f"{prefix}input_layernorm.weight") if self.exists else None

    def forward(self, weight: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor | None]:
        return (x, None) if weight is None else self.norm.forward(weight, x)

    def backward(
        self,
        weight: Tensor | None,
        gradient: Tensor | None,
        x: Tensor,
        r: Tensor | None,
        da: Tensor,
        residual: Tensor,
    ) -> Tensor:
        """The gradient of the input, which also went past attention."""
        if weight is None or gradient is None or r is None:
            return da + residual
        return self.norm.backward(weight, gradient, x, r, da, residual)


class PreAttention:
    """The first part of a layer, up to queries, keys and values."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK) -> None:
        """`config` has the heads of this rank's matrices."""
        self.norm, self.tokens = InputNorm(config), cell.tokens
        self.projection = QkvProjection(config, cell)

    def views(self, views: Views, layer: int) -> PreAttentionWeights:
        prefix = layer_prefix(layer)
        return PreAttentionWeights(
            self.norm.view(views, prefix),
            self.projection.views(views, f"{prefix}self_attn."),
        )

    def forward(
        self, weights: PreAttentionWeights, x: Tensor, piece: Piece
    ) -> Work[tuple[Tensor, PreAttentionSaved]]:
        """Queries, keys and values [rows x tokens, features], side by side."""
        a, r = self.norm.forward(weights.norm, x)
        whole = yield from gather_tokens(self.tokens, a, piece.tokens.numel())
        heads, norms = yield from self.projection.forward(weights.projection, whole, piece.rows)
        flat = [part.flatten(2).flatten(0, 1) for part in heads]
        return torch.cat(flat, dim=1), PreAttentionSaved(x, r, a, norms)

    def backward(
        self,
        weights: PreAttentionWeights,
        gradients: PreAttentionWeights,
        saved: PreAttentionSaved,
        d: Tensor,
        beside: Tensor,
        piece: Piece,
        queue: Queue,
    ) -> Work[Tensor]:
        """The gradient of the input, of those of queries, keys and values and of what went past
        them."""
        whole = yield from gather_tokens(self.tokens, saved.a, len(d))
        part = yield from self.projection.backward(
            weights.projection, gradients.projection, whole, saved.norms, d, piece.rows, queue
        )
        da = yield from add_up_tokens(self.tokens, part)
        return self.norm.backward(weights.norm, gradients.norm, saved.x, saved.r, da, beside)
