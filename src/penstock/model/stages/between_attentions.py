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
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.model.attention.piece import Piece
from penstock.model.layers.embedding import TokenEmbedding
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
from penstock.model.layers.qkv_projection import qkv_width
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell, begun_in_cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import wait_for
from penstock.model.stages.decoder import first_word
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

    def __init__(
        self, config: ModelConfig, number: int, layout: ParameterLayout, cell: Cell = SINGLE_RANK
    ) -> None:
        """`config` has the sizes of this rank's matrices."""
        self.config, self.number, self.layout, self.cell = config, number, layout, cell
        self.embedding = TokenEmbedding(cell, first_word(layout, EMBEDDING))
        self.post, self.pre = PostAttention(config, cell), PreAttention(config, cell)
        self.output = OutputLayer(config, cell, first_word(layout, HEAD))

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

    @begun_in_cell
    @torch.no_grad()
    def forward(
        self, weights: BetweenWeights, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[Forward]:
        return (*(yield from self._run(weights, piece, x)), None)

    @begun_in_cell
    @torch.no_grad()
    def forward_light(
        self, weights: BetweenWeights, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[Forward]:
        return (yield from self._run(weights, piece, x))[0], x, None

    @begun_in_cell
    @torch.no_grad()
    def evaluate(
        self, weights: BetweenWeights, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[Forward]:
        if weights.output is None:
            return (yield from self._run(weights, piece, x))[0], None, None
        y, _, _ = yield from self._layer_output(weights, piece, x)
        return (yield from self.output.loss(weights.output, y, piece)), None, None

    @begun_in_cell
    @torch.no_grad()
    def recompute(
        self, weights: BetweenWeights, piece: Piece, ckpt: Any, kv: Any
    ) -> Work[BetweenSaved]:
        return (yield from self._run(weights, piece, ckpt))[1]

    @begun_in_cell
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
    ) -> Work[Backward]:
        queue = Queue()
        dx, loss = yield from self._backward(weights, gradients, piece, act, g, queue)
        return dx, None, queue, loss

    @begun_in_cell
    @torch.no_grad()
    def backward(
        self,
        weights: BetweenWeights,
        gradients: BetweenWeights,
        piece: Piece,
        act: BetweenSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Work[Backward]:
        queue = Queue()
        dx, loss = yield from self._backward(weights, gradients, piece, act, g, queue)
        self.weight_gradient(gradients, piece, queue)
        return dx, None, None, loss

    @torch.no_grad()
    def weight_gradient(self, gradients: BetweenWeights, piece: Piece, stash: Queue) -> None:
        add_products(gradients.matrices, stash)

    def _run(
        self, weights: BetweenWeights, piece: Piece, x: Tensor | None
    ) -> Work[tuple[Tensor | None, BetweenSaved]]:
        """What goes to the next attention, and what is kept."""
        y, attended, post = yield from self._layer_output(weights, piece, x)
        if weights.output is not None:
            return None, BetweenSaved(attended, post, None, y)
        assert weights.pre is not None
        qkv, pre = yield from self.pre.forward(weights.pre, y, piece)
        out = join_beside(qkv, self.cell.tokens.hand_on(y))
        return out, BetweenSaved(attended, post, pre, None)

    def _backward(
        self,
        weights: BetweenWeights,
        gradients: BetweenWeights,
        piece: Piece,
        act: BetweenSaved,
        g: Tensor | None,
        queue: Queue,
    ) -> Work[tuple[Tensor | None, Tensor | None]]:
        """The gradient of the stage's input and the loss, where it has them."""
        loss, dy = yield from self._output_gradient(weights, gradients, piece, act, g, queue)
        if gradients.embedding is not None:
            yield from self.embedding.backward(gradients.embedding, piece.tokens, dy)
            return None, loss
        assert weights.post is not None
        assert gradients.post is not None
        assert act.attended is not None
        assert act.post is not None
        d_attended, beside = yield from self.post.backward(
            weights.post, gradients.post, act.attended, act.post, dy, queue
        )
        return join_beside(d_attended, self.cell.tokens.hand_on(beside)), loss

    def _layer_output(
        self, weights: BetweenWeights, piece: Piece, x: Tensor | None
    ) -> Work[tuple[Tensor, Tensor | None, PostAttentionSaved | None]]:
        """The layer's output, and what is kept of what follows attention."""
        if weights.embedding is not None:
            y = yield from self.embedding.forward(weights.embedding, piece.tokens)
            return y, None, None
        assert weights.post is not None
        attended, beside = yield from self._taken_over(x, piece, attention_width(self.config))
        y, post = yield from self.post.forward(weights.post, attended, beside)
        return y, attended, post

    def _taken_over(
        self, x: Tensor | None, piece: Piece, width: int
    ) -> Work[tuple[Tensor, Tensor]]:
        """What came from another stage: what is of `width` features, and what went past it."""
        features, handed = split_beside(x, piece, width)
        rows = handed.view(-1, self.config.hidden)
        held, pending = self.cell.tokens.take_over(rows, piece.tokens.numel())
        yield from wait_for(pending)
        return features, held

    def _output_gradient(
        self,
        weights: BetweenWeights,
        gradients: BetweenWeights,
        piece: Piece,
        act: BetweenSaved,
        g: Tensor | None,
        queue: Queue,
    ) -> Work[tuple[Tensor | None, Tensor]]:
        """The loss on the last stage, and the gradient of the layer's output."""
        if weights.output is not None:
            assert gradients.output is not None
            assert act.out is not None
            return (
                yield from self.output.backward(weights.output, gradients.output, act.out, piece)
            )
        assert weights.pre is not None
        assert gradients.pre is not None
        assert act.pre is not None
        d, beside = yield from self._taken_over(g, piece, qkv_width(self.config))
        return None, (
            yield from self.pre.backward(
                weights.pre, gradients.pre, act.pre, d.clone(), beside, piece, queue
            )
        )


def attention_width(config: ModelConfig) -> int:
    """Features of the output of attention."""
    return config.heads * config.head_size


def join_beside(features: Tensor, handed: Tensor) -> Tensor:
    """Features of all tokens of a rank, and behind them what goes past attention, flat: the two
    need not have the same number of tokens."""
    return torch.cat((features.flatten(), handed.flatten()))


def split_beside(x: Tensor | None, piece: Piece, width: int) -> tuple[Tensor, Tensor]:
    """Features [tokens, width], and what went past attention, flat."""
    assert x is not None  # attention stands between two stages
    count = piece.tokens.numel()
    return x[: count * width].view(count, width), x[count * width :]
