"""A model cut at its attention, which has no weights and so can run on any device.

    stage 0            embedding, and what leads into the attention of layer 0
    attention of 0     ...
    stage 2 j          what follows the attention of layer j - 1, and leads into that of layer j
    stage 2 L          what follows the last attention, final norm, head and loss

Between them travel, in one tensor, what attention is given (attention_front.py) and the layer's
input on the way to attention, and its output and the layer's input on the way back.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.attention_cut import HEADS
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
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell, begun_in_cell
from penstock.model.parallel.group import Work
from penstock.model.stages.attention_front import attention_front
from penstock.model.stages.beside import (
    attention_width,
    join_beside,
    split_beside,
    taken_over,
)
from penstock.model.stages.decoder import first_word
from penstock.model.stages.stage import Backward, Forward


class BetweenWeights(NamedTuple):
    """Weights between two attentions, or their gradients. At the front stands `embedding` or
    `post`, at the end `front` or `output`."""

    embedding: Tensor | None
    post: PostAttentionWeights | None
    front: Any
    output: OutputWeights | None
    matrices: list[Tensor]
    """By the number that a queue knows them by."""


class BetweenSaved(NamedTuple):
    """What is kept of one slice: of what follows attention, of what leads into the next, and what
    the last layer gave, with which the loss starts."""

    attended: Tensor | None
    post: PostAttentionSaved | None
    front: Any
    out: Tensor | None


class BetweenAttentionsStage:
    """What stands between the attention of layer `number` - 1 and that of layer `number`."""

    def __init__(
        self,
        config: ModelConfig,
        number: int,
        layout: ParameterLayout,
        cell: Cell = SINGLE_RANK,
        to_attention: str = HEADS,
    ) -> None:
        """`config` has the sizes of this rank's matrices."""
        self.config, self.number, self.layout, self.cell = config, number, layout, cell
        first = first_word(layout, EMBEDDING)
        self.embedding = TokenEmbedding(cell, first, config.embedding_scale)
        self.post, self.front = (
            PostAttention(config, cell),
            attention_front(config, cell, to_attention),
        )
        self.output = OutputLayer(config, cell, first_word(layout, HEAD))

    def views(self, flat: Tensor, frozen: Tensor | None = None) -> BetweenWeights:
        views, number = Views(self.layout, flat, frozen, self.config.adapter_scale), self.number
        first, last = number == 0, number == self.config.layers
        return BetweenWeights(
            views.vector(EMBEDDING) if first else None,
            None if first else self.post.views(views, number - 1),
            None if last else self.front.views(views, number),
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
        out, front = yield from self.front.forward(weights.front, y, piece)
        return out, BetweenSaved(attended, post, front, None)

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
        attended, handed = split_beside(x, piece, attention_width(self.config))
        beside = yield from taken_over(self.cell, handed, self.config.hidden, piece)
        y, post = yield from self.post.forward(weights.post, attended, beside)
        return y, attended, post

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
        return None, (
            yield from self.front.backward(
                weights.front, gradients.front, act.front, g, piece, queue
            )
        )
