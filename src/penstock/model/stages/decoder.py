"""A stage of a decoder: some layers, with the embedding in front of the first and the head behind
the last.

Nothing here is recorded by autograd: every layer's backward is written out
(model/layers/decoder_layer.py), so that what is kept, what is put off and what is added up in which
order is plain to see.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.errors import RunError
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece
from penstock.model.attention.slice_attention import SliceOfLayer
from penstock.model.layers.decoder_layer import DecoderLayer, LayerSaved, LayerWeights
from penstock.model.layers.embedding import embed, embed_backward
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.output_layer import OutputLayer, OutputWeights
from penstock.model.layers.views import Views
from penstock.model.stages.context import SequenceContext
from penstock.model.stages.stage import Backward, Forward


class StageWeights(NamedTuple):
    """Weights of a stage, or their gradients."""

    embedding: Tensor | None
    layers: list[LayerWeights]
    output: OutputWeights | None
    matrices: list[Tensor]
    """By the number that a queue knows them by."""


class StageSaved(NamedTuple):
    """What a stage keeps of one slice."""

    layers: list[LayerSaved]
    out: Tensor | None
    """What the layers gave, on the last stage: its backward starts with the loss."""


class DecoderStage:
    """Layers `layers` of a model; the first stage embeds, the last one has the loss."""

    def __init__(
        self,
        config: ModelConfig,
        layers: range,
        layout: ParameterLayout,
        *,
        length: int,
        like: Tensor,
    ) -> None:
        """`length` is the longest sequence it will see, `like` has the type and the device of what
        is computed."""
        self.config, self.layout = config, layout
        self.layers = [DecoderLayer(config, layer) for layer in layers]
        self.output = OutputLayer(config) if HEAD in layout.parts else None
        self.context = SequenceContext(config, len(self.layers), length, like)

    def views(self, flat: Tensor) -> StageWeights:
        views = Views(self.layout, flat)
        embedding = views.vector(EMBEDDING) if EMBEDDING in views else None
        layers = [layer.views(views) for layer in self.layers]
        output = self.output.views(views) if self.output else None
        return StageWeights(embedding, layers, output, views.matrices)

    @torch.no_grad()
    def forward(self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memory = self.context.memory(piece, kv)
        x = _first_input(weights, piece, x)
        saved, y = self._run_layers(weights, piece, x, memory, written=False)
        return self._handed_on(y, piece), saved, memory

    @torch.no_grad()
    def forward_light(
        self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: Any
    ) -> Forward:
        memory = self.context.memory(piece, kv)
        y = self._run_without_saving(weights, piece, _first_input(weights, piece, x), memory)
        return self._handed_on(y, piece), x, memory

    @torch.no_grad()
    def evaluate(self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memory = self.context.memory(piece, kv)
        y = self._run_without_saving(weights, piece, _first_input(weights, piece, x), memory)
        if self.output is None or weights.output is None:
            return self._handed_on(y, piece), None, memory
        return self.output.loss(weights.output, y, piece), None, memory

    @torch.no_grad()
    def recompute(self, weights: StageWeights, piece: Piece, ckpt: Any, kv: Any) -> StageSaved:
        x = _first_input(weights, piece, ckpt)
        return self._run_layers(weights, piece, x, kv, written=True)[0]

    @torch.no_grad()
    def input_gradient(
        self,
        weights: StageWeights,
        gradients: StageWeights,
        piece: Piece,
        act: StageSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Backward:
        if kv is not None and dkv is None:
            dkv = kv.open_gradients()
        dx, queue, loss = self._run_back(weights, gradients, piece, act, g, kv, _put_off)
        return _input_gradient(gradients, piece, dx), dkv, queue, loss

    @torch.no_grad()
    def backward(
        self,
        weights: StageWeights,
        gradients: StageWeights,
        piece: Piece,
        act: StageSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Backward:
        """Weight gradients follow layer by layer, so that little waits for them."""
        if kv is not None and dkv is None:
            dkv = kv.open_gradients()
        add = partial(add_products, gradients.matrices)
        dx, queue, loss = self._run_back(weights, gradients, piece, act, g, kv, add)
        return _input_gradient(gradients, piece, dx), dkv, queue, loss

    @torch.no_grad()
    def weight_gradient(self, gradients: StageWeights, piece: Piece, stash: Queue) -> None:
        add_products(gradients.matrices, stash)

    @torch.no_grad()
    def logits(
        self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: Any = None
    ) -> Tensor:
        """Scores of every word [rows, tokens, vocabulary]; of a stage that has the head."""
        if self.output is None or weights.output is None:
            raise RunError("a stage without the head has no logits", hint="ask the last stage")
        memory = self.context.memory(piece, kv)
        y = self._run_without_saving(weights, piece, _first_input(weights, piece, x), memory)
        return self.output.logits(weights.output, y).view(piece.rows, piece.end - piece.start, -1)

    def _run_layers(
        self, weights: StageWeights, piece: Piece, x: Tensor, kv: KeyValues | None, written: bool
    ) -> tuple[StageSaved, Tensor]:
        """What is kept, and what the layers give."""
        kept: list[LayerSaved] = []
        for number, layer in enumerate(self.layers):
            context = self.context.of_slice(SliceOfLayer(piece, kv, number), written)
            x, saved = layer.forward(weights.layers[number], x, context)
            kept.append(saved)
        return StageSaved(kept, x if self.output else None), x

    def _run_without_saving(
        self, weights: StageWeights, piece: Piece, x: Tensor, kv: KeyValues | None
    ) -> Tensor:
        """The output of the layers, each of which lets go of what it keeps."""
        for number, layer in enumerate(self.layers):
            context = self.context.of_slice(SliceOfLayer(piece, kv, number), written=False)
            x = layer.forward(weights.layers[number], x, context)[0]
        return x

    def _handed_on(self, y: Tensor, piece: Piece) -> Tensor | None:
        """The next stage's input, where there is one."""
        return y.view(piece.rows, -1, y.shape[-1]) if self.output is None else None

    def _output_gradient(
        self,
        weights: StageWeights,
        gradients: StageWeights,
        piece: Piece,
        act: StageSaved,
        g: Tensor | None,
    ) -> tuple[Tensor | None, Tensor]:
        """The loss on the last stage, and the gradient of what the layers gave: from the loss, or
        from the next stage."""
        if self.output is None or act.out is None:
            return None, flatten_rows(g)
        assert weights.output is not None
        assert gradients.output is not None
        return self.output.backward(weights.output, gradients.output, act.out, piece)

    def _run_back(
        self,
        weights: StageWeights,
        gradients: StageWeights,
        piece: Piece,
        act: StageSaved,
        g: Tensor | None,
        kv: KeyValues | None,
        after_layer: Callable[[Queue], None],
    ) -> tuple[Tensor, Queue, Tensor | None]:
        """The gradient of what the layers got, the products that are still to be added, and the
        loss."""
        loss, dx = self._output_gradient(weights, gradients, piece, act, g)
        queue: Queue = []
        for number in reversed(range(len(self.layers))):
            context = self.context.of_slice(SliceOfLayer(piece, kv, number), written=True)
            own, d_own = weights.layers[number], gradients.layers[number]
            dx = self.layers[number].backward(own, d_own, act.layers.pop(), dx, context, queue)
            after_layer(queue)
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        return dx, queue, loss


def _put_off(queue: Queue) -> None:
    """Leave the products of a layer to the weight gradient."""
    return


def _first_input(weights: StageWeights, piece: Piece, x: Tensor | None) -> Tensor:
    """What the first layer gets, rows one behind the other."""
    if weights.embedding is None:
        return flatten_rows(x)
    return embed(weights.embedding, piece.tokens)


def _input_gradient(gradients: StageWeights, piece: Piece, dx: Tensor) -> Tensor | None:
    """The gradient of the stage's input; it ends in the embedding where the stage has one."""
    if gradients.embedding is None:
        return dx.view(piece.rows, -1, dx.shape[-1])
    embed_backward(gradients.embedding, piece.tokens, dx)
    return None


def flatten_rows(x: Tensor | None) -> Tensor:
    """[rows, tokens, hidden] -> [rows x tokens, hidden]"""
    assert x is not None  # only the first stage has no input, only the last one no gradient
    return x.view(-1, x.shape[-1])
