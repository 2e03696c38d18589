"""The part of a layer in front of its attention, where that is a stage of its own.

Attention needs queries, keys and values. Either this part makes them and sends them, or it sends
its normed input and the weights that make them, and gets the gradients of both back. What a model
computes is the same.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from penstock.arch.attention_cut import HEADS, projection_parameters
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.attention.piece import Piece
from penstock.model.layers.linear import Queue
from penstock.model.layers.pre_attention import (
    InputNorm,
    PreAttention,
    PreAttentionSaved,
    PreAttentionWeights,
)
from penstock.model.layers.qkv_projection import qkv_width
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import Work
from penstock.model.stages.beside import join_beside, split_beside, taken_over


class AttentionFront(Protocol):
    """From a layer's input to what is sent to its attention."""

    def views(self, views: Views, layer: int) -> Any: ...

    def forward(self, weights: Any, y: Tensor, piece: Piece) -> Work[tuple[Tensor, Any]]:
        """What is sent, and what is kept."""
        ...

    def backward(
        self,
        weights: Any,
        gradients: Any,
        saved: Any,
        g: Tensor | None,
        piece: Piece,
        queue: Queue,
    ) -> Work[Tensor]:
        """The gradient of the input, of what came back."""
        ...


class HeadsFront:
    """Sends queries, keys and values, and the layer's input."""

    def __init__(self, config: ModelConfig, cell: Cell) -> None:
        self.config, self.cell, self.pre = config, cell, PreAttention(config, cell)

    def views(self, views: Views, layer: int) -> PreAttentionWeights:
        return self.pre.views(views, layer)

    def forward(
        self, weights: PreAttentionWeights, y: Tensor, piece: Piece
    ) -> Work[tuple[Tensor, PreAttentionSaved]]:
        qkv, saved = yield from self.pre.forward(weights, y, piece)
        return join_beside(qkv, self.cell.tokens.hand_on(y)), saved

    def backward(
        self,
        weights: PreAttentionWeights,
        gradients: PreAttentionWeights,
        saved: PreAttentionSaved,
        g: Tensor | None,
        piece: Piece,
        queue: Queue,
    ) -> Work[Tensor]:
        d, handed = split_beside(g, piece, qkv_width(self.config))
        beside = yield from taken_over(self.cell, handed, self.config.hidden, piece)
        return (
            yield from self.pre.backward(weights, gradients, saved, d.clone(), beside, piece, queue)
        )


class NormWeights(NamedTuple):
    """Weights in front of attention, or their gradients; those of the projection as they lie."""

    norm: Tensor | None
    projection: Tensor


class FrontNormSaved(NamedTuple):
    """What the backward of the norm needs."""

    x: Tensor
    r: Tensor | None


class WeightsFront:
    """Sends the weights of the projection, its input, and the layer's input."""

    def __init__(self, config: ModelConfig, cell: Cell) -> None:
        self.config, self.cell, self.norm = config, cell, InputNorm(config)

    def views(self, views: Views, layer: int) -> NormWeights:
        prefix = layer_prefix(layer)
        names = [prefix + each.name for each in projection_parameters(self.config)]
        return NormWeights(self.norm.view(views, prefix), views.flat(*names))

    def forward(
        self, weights: NormWeights, y: Tensor, piece: Piece
    ) -> Work[tuple[Tensor, FrontNormSaved]]:
        yield from ()  # nobody is waited for
        a, r = self.norm.forward(weights.norm, y)
        handed = (self.cell.tokens.hand_on(each).flatten() for each in (a, y))
        return torch.cat((weights.projection, *handed)), FrontNormSaved(y, r)

    def backward(
        self,
        weights: NormWeights,
        gradients: NormWeights,
        saved: FrontNormSaved,
        g: Tensor | None,
        piece: Piece,
        queue: Queue,
    ) -> Work[Tensor]:
        assert g is not None  # attention follows
        count = len(weights.projection)
        gradients.projection.add_(g[:count])
        parts, hidden = g[count:].view(2, -1), self.config.hidden
        da = yield from taken_over(self.cell, parts[0], hidden, piece)
        beside = yield from taken_over(self.cell, parts[1], hidden, piece)
        return self.norm.backward(weights.norm, gradients.norm, *saved, da, beside)


def attention_front(config: ModelConfig, cell: Cell, to_attention: str) -> AttentionFront:
    """The part that sends what attention is given."""
    return (HeadsFront if to_attention == HEADS else WeightsFront)(config, cell)
