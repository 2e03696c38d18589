"""A model cut at its attention, which has no weights and so can run on any device.

    stage 0            embedding, and what leads into the attention of layer 0
    attention of 0     ...
    stage 2 j          what follows the attention of layer j - 1, and leads into that of layer j
    stage 2 L          what follows the last attention, final norm, head and loss

Between them travel, side by side in one tensor, queries, keys, values and the layer's input on the
way to attention, and its output and the layer's input on the way back.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.parameters import EMBEDDING
from penstock.model.attention.piece import Piece
from penstock.model.layers.embedding import embed, embed_backward
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.output_layer import OutputLayer, OutputWeights
from penstock.model.layers.post_attention import (
    PostAttention,
    PostAttentionSaved,
    PostAttentionWeights,
)
from penstock.model.layers.pre_attention import (
    PreAttention,
    PreAttentionSaved,
    PreAttentionWeights,
)
from penstock.model.layers.views import Views
from penstock.model.stages.decoder import flatten_rows
from penstock.model.stages.stage import Backward, Forward


class BetweenWeights(NamedTuple):
    """Weights between two attentions, or their gradients. At the front stands `embedding` or
    `post`, at the end `pre` or `output`."""

    embedding: Tensor | None
    post: PostAttentionWeights | None
    pre: PreAttentionWeights | None
    output: OutputWeights | None
    matrices: list[Tensor]
    """By the number that a queue knows them by."""


class BetweenSaved(NamedTuple):
    """What is kept of one slice: of what follows attention, of what leads into the next, and what
    the last layer gave, with which the loss starts."""

    attended: Tensor | None
    post: PostAttentionSaved | None
    pre: PreAttentionSaved | None
    out: Tensor | None


class BetweenAttentionsStage:
    """What stands between the attention of layer `number` - 1 and that of layer `number`."""

    def __init__(self, config: ModelConfig, number: int, layout: ParameterLayout) -> None:
        self.config, self.number, self.layout = config, number, layout
        self.post, self.pre, self.output = (
            PostAttention(config),
            PreAttention(config),
            OutputLayer(config),
        )

    def views(self, flat: Tensor) -> BetweenWeights:
        views, number = Views(self.layout, flat), self.number
        first, last = number == 0, number == self.config.layers
        return BetweenWeights(
            views.vector(EMBEDDING) if first else None,
            None if first else self.post.views(views, number - 1),
            None if last else self.pre.views(views, number),
            self.output.views(views) if last else None,
            views.matrices,
        )

    @torch.no_grad()
    def forward(self, weights: BetweenWeights, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        y, attended, post = self._layer_output(weights, piece, x)
        if weights.output is not None:
            return None, BetweenSaved(attended, post, None, y), None
        assert weights.pre is not None
        out, pre = self.pre.forward(weights.pre, y, piece.rows)
        saved = BetweenSaved(attended, post, pre, None)
        return out.view(piece.rows, -1, out.shape[-1]), saved, None

    def forward_light(
        self, weights: BetweenWeights, piece: Piece, x: Tensor | None, kv: Any
    ) -> Forward:
        return self.forward(weights, piece, x, kv)[0], x, None

    @torch.no_grad()
    def evaluate(self, weights: BetweenWeights, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        if weights.output is None:
            return self.forward(weights, piece, x, kv)[0], None, None
        y, _, _ = self._layer_output(weights, piece, x)
        return self.output.loss(weights.output, y, piece), None, None

    def recompute(self, weights: BetweenWeights, piece: Piece, ckpt: Any, kv: Any) -> BetweenSaved:
        saved: BetweenSaved = self.forward(weights, piece, ckpt, kv)[1]
        return saved

    @torch.no_grad()
    def input_gradient(
        self,
        weights: BetweenWeights,
        gradients: BetweenWeights,
        piece: Piece,
        act: BetweenSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Backward:
        queue: Queue = []
        loss, dy = self._output_gradient(weights, gradients, piece, act, g, queue)
        if gradients.embedding is not None:
            embed_backward(gradients.embedding, piece.tokens, dy)
            return None, None, queue, loss
        assert weights.post is not None
        assert gradients.post is not None
        assert act.attended is not None
        assert act.post is not None
        both = self.post.backward(weights.post, gradients.post, act.attended, act.post, dy, queue)
        out = torch.cat(both, dim=1)
        return out.view(piece.rows, -1, out.shape[-1]), None, queue, loss

    def backward(
        self,
        weights: BetweenWeights,
        gradients: BetweenWeights,
        piece: Piece,
        act: BetweenSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Backward:
        out, _, queue, loss = self.input_gradient(weights, gradients, piece, act, g, kv, dkv)
        self.weight_gradient(gradients, piece, queue)
        return out, None, None, loss

    @torch.no_grad()
    def weight_gradient(self, gradients: BetweenWeights, piece: Piece, stash: Queue) -> None:
        add_products(gradients.matrices, stash)

    def _layer_output(
        self, weights: BetweenWeights, piece: Piece, x: Tensor | None
    ) -> tuple[Tensor, Tensor | None, PostAttentionSaved | None]:
        """The layer's output, and what is kept of what follows attention."""
        if weights.embedding is not None:
            return embed(weights.embedding, piece.tokens), None, None
        assert weights.post is not None
        width = attention_width(self.config)
        attended, beside = flatten_rows(x).tensor_split((width,), dim=1)
        y, post = self.post.forward(weights.post, attended, beside)
        return y, attended, post

    def _output_gradient(
        self,
        weights: BetweenWeights,
        gradients: BetweenWeights,
        piece: Piece,
        act: BetweenSaved,
        g: Tensor | None,
        queue: Queue,
    ) -> tuple[Tensor | None, Tensor]:
        """The loss on the last stage, and the gradient of the layer's output."""
        if weights.output is not None:
            assert gradients.output is not None
            assert act.out is not None
            return self.output.backward(weights.output, gradients.output, act.out, piece)
        assert weights.pre is not None
        assert gradients.pre is not None
        assert act.pre is not None
        d = flatten_rows(g)
        return None, self.pre.backward(weights.pre, gradients.pre, act.pre, d, piece.rows, queue)


def attention_width(config: ModelConfig) -> int:
    """Features of the output of attention."""
    return config.heads * config.head_size
