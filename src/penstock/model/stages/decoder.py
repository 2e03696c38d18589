"""A stage of a decoder: some layers, with the embedding in front of the first and the head behind
the last; or with the last norm alone, where embedding and head are shards on all devices.

Nothing here is recorded by autograd: every layer's backward is written out
(model/layers/decoder_layer.py), so that what is kept, what is put off and what is added up in which
order is plain to see.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.parameters import EMBEDDING, HEAD, LAST_NORM
from penstock.errors import RunError
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece
from penstock.model.layers.embedding import TokenEmbedding
from penstock.model.layers.final_norm import FinalNorm, NormSaved
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.mlp_layer import layer_of
from penstock.model.layers.output_layer import OutputLayer
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell, begun_in_cell, result_of
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import wait_for
from penstock.model.stages.carried_loads import StagePlace, loads_on
from penstock.model.stages.context import SequenceContext
from penstock.model.stages.decoder_values import StageSaved, StageWeights
from penstock.model.stages.stage import Backward, Forward


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
        cell: Cell = SINGLE_RANK,
        first: bool = True,
    ) -> None:
        """`config` has the sizes of this rank's matrices, `length` is the longest sequence it will
        see, `like` has the type and the device of what is computed."""
        self.config, self.layout, self.cell = config, layout, cell
        self.layers = [layer_of(config, layer, cell) for layer in layers]
        word = first_word(layout, EMBEDDING)
        self.embedding = TokenEmbedding(cell, word, config.embedding_scale)
        self.output = None
        if HEAD in layout:
            self.output = OutputLayer(config, cell, first_word(layout, HEAD))
        self.norm = None
        if LAST_NORM in layout and self.output is None:
            self.norm = FinalNorm(config)
        self.context = SequenceContext(config, layers, length, like, cell)
        place = StagePlace(first, last=LAST_NORM in layout)
        self.loads = loads_on(config, place, like, cell)

    def views(self, flat: Tensor, frozen: Tensor | None = None) -> StageWeights:
        views = Views(self.layout, flat, frozen, self.config.adapter_scale)
        embedding = views.vector(EMBEDDING) if EMBEDDING in views else None
        layers = [layer.views(views) for layer in self.layers]
        output = self.output.views(views) if self.output else None
        norm = self.norm.views(views) if self.norm else None
        return StageWeights(embedding, layers, output, norm, views.matrices)

    @begun_in_cell
    @torch.no_grad()
    def forward(
        self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[Forward]:
        memory = self.memory(piece, kv)
        saved, y = yield from self._saving(weights, piece, x, memory, written=False)
        return self._handed_on(y, saved.loads), saved, memory

    @begun_in_cell
    @torch.no_grad()
    def forward_light(
        self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[Forward]:
        memory = self.memory(piece, kv)
        y, loads = yield from self._without_saving(weights, piece, x, memory)
        return self._handed_on(self._normed(weights, y)[0], loads), x, memory

    @begun_in_cell
    @torch.no_grad()
    def evaluate(
        self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[Forward]:
        memory = self.memory(piece, kv)
        y, loads = yield from self._without_saving(weights, piece, x, memory)
        if self.output is None or weights.output is None:
            return self._handed_on(self._normed(weights, y)[0], loads), None, memory
        return (yield from self.output.loss(weights.output, y, piece)), None, memory

    @begun_in_cell
    @torch.no_grad()
    def recompute(
        self, weights: StageWeights, piece: Piece, ckpt: Any, kv: Any
    ) -> Work[StageSaved]:
        saved, _ = yield from self._saving(weights, piece, ckpt, kv, written=True)
        return saved

    @begun_in_cell
    def input_gradient(
        self,
        weights: StageWeights,
        gradients: StageWeights,
        piece: Piece,
        act: StageSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Work[Backward]:
        queue, dkv = Queue(), _opened(kv, dkv)
        work = self._backward(weights, gradients, piece, act, g, kv, queue)
        dx, loss = yield from work
        return dx, dkv, queue, loss

    @begun_in_cell
    def backward(
        self,
        weights: StageWeights,
        gradients: StageWeights,
        piece: Piece,
        act: StageSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Work[Backward]:
        """Weight gradients follow layer by layer, so that little waits for them."""
        queue, dkv = Queue(partial(add_products, gradients.matrices)), _opened(kv, dkv)
        work = self._backward(weights, gradients, piece, act, g, kv, queue)
        dx, loss = yield from work
        return dx, dkv, queue, loss

    @torch.no_grad()
    def weight_gradient(self, gradients: StageWeights, piece: Piece, stash: Queue) -> None:
        add_products(gradients.matrices, stash)

    @torch.no_grad()
    def logits(
        self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: Any = None
    ) -> Tensor:
        """Scores of every word [rows, tokens, vocabulary]; of a stage that has the head, on a rank
        that is alone."""
        if self.output is None or weights.output is None:
            raise RunError("a stage without the head has no logits", hint="ask the last stage")
        memory = self.memory(piece, kv)
        y, _ = result_of(self._without_saving(weights, piece, x, memory))
        return self.output.logits(weights.output, y).view(piece.rows, piece.end - piece.start, -1)

    @torch.no_grad()
    def _backward(
        self,
        weights: StageWeights,
        gradients: StageWeights,
        piece: Piece,
        act: StageSaved,
        g: Tensor | None,
        kv: Any,
        queue: Queue,
    ) -> Work[tuple[Tensor | None, Tensor | None]]:
        """The gradient of the stage's input and the loss, where it has them."""
        rows, slope = self.loads.open_backward(piece, g, act.loads, kv)
        loss, dx = yield from self._output_gradient(weights, gradients, piece, act, rows)
        loss = self.loads.add_loss(loss, piece, act.loads, kv)
        context = self.context.of_slice(piece, kv, written=True)
        for number in reversed(range(len(self.layers))):
            own, d_own = weights.layers[number], gradients.layers[number]
            dx = yield from self.layers[number].backward(
                own, d_own, act.layers.pop(), dx, context(number), queue, slope
            )
            queue.meanwhile()
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        return (yield from self._input_gradient(gradients, piece, dx, slope)), loss

    def _saving(
        self,
        weights: StageWeights,
        piece: Piece,
        x: Tensor | None,
        kv: KeyValues | None,
        *,
        written: bool,
    ) -> Work[tuple[StageSaved, Tensor]]:
        """What is kept, and what the layers give."""
        kept: list[Any] = []
        context = self.context.of_slice(piece, kv, written=written)
        rows, loads = self.loads.open(x)
        y = yield from self._first_input(weights, piece, rows)
        for number, layer in enumerate(self.layers):
            y, saved = yield from layer.forward(weights.layers[number], y, context(number))
            loads = self.loads.add(loads, saved.post)
            kept.append(saved)
        y, norm = self._normed(weights, y)
        loads = yield from self.loads.close(loads, None if written else kv)
        return StageSaved(kept, y if self.output else None, norm, loads), y

    def _without_saving(
        self, weights: StageWeights, piece: Piece, x: Tensor | None, kv: KeyValues | None
    ) -> Work[tuple[Tensor, Tensor | None]]:
        """The output of the layers, each of which lets go of what it keeps, and their loads."""
        context = self.context.of_slice(piece, kv, written=False)
        rows, loads = self.loads.open(x)
        y = yield from self._first_input(weights, piece, rows)
        for number, layer in enumerate(self.layers):
            y, saved = yield from layer.forward(weights.layers[number], y, context(number))
            loads = self.loads.add(loads, saved.post)
            del saved
        return y, (yield from self.loads.close(loads, kv))

    def memory(self, piece: Piece, kv: Any) -> Any:
        """What slices of a sequence leave each other on this stage."""
        return self.loads.memory(piece, self.context.memory(piece, kv))

    def _first_input(self, weights: StageWeights, piece: Piece, x: Tensor | None) -> Work[Tensor]:
        """What the first layer gets, rows one behind the other."""
        if weights.embedding is not None:
            return (yield from self.embedding.forward(weights.embedding, piece.tokens))
        assert x is not None  # only the first stage has no input
        held, pending = self.cell.tokens.take_over(x, piece.tokens.numel())
        yield from wait_for(pending)
        return held

    def _normed(self, weights: StageWeights, y: Tensor) -> tuple[Tensor, NormSaved | None]:
        """What leaves the stage, and what the norm keeps, where the stage ends with one."""
        if self.norm is None or weights.norm is None:
            return y, None
        return self.norm.forward(weights.norm, y)

    def _handed_on(self, y: Tensor, loads: Tensor | None) -> Tensor | None:
        """The next stage's input, where there is one."""
        if self.output is not None:
            return None
        return self.loads.hand_on(self.cell.tokens.hand_on(y), loads)

    def _output_gradient(
        self,
        weights: StageWeights,
        gradients: StageWeights,
        piece: Piece,
        act: StageSaved,
        g: Tensor | None,
    ) -> Work[tuple[Tensor | None, Tensor]]:
        """The loss on the last stage, and the gradient of what the layers gave: from the loss, or
        from the next stage."""
        if self.output is None or act.out is None:
            assert g is not None  # only the last stage has no gradient to start from
            held, pending = self.cell.tokens.take_over(g, piece.tokens.numel())
            yield from wait_for(pending)
            return None, self._through_norm(weights, gradients, act, held)
        assert weights.output is not None
        assert gradients.output is not None
        return (yield from self.output.backward(weights.output, gradients.output, act.out, piece))

    def _through_norm(
        self, weights: StageWeights, gradients: StageWeights, act: StageSaved, g: Tensor
    ) -> Tensor:
        """The gradient of what the layers gave, where a norm follows them."""
        if self.norm is None or act.norm is None:
            return g
        assert weights.norm is not None
        assert gradients.norm is not None
        return self.norm.backward(weights.norm, gradients.norm, act.norm, g)

    def _input_gradient(
        self, gradients: StageWeights, piece: Piece, dx: Tensor, slope: Tensor | None
    ) -> Work[Tensor | None]:
        """The gradient of the stage's input; it ends in the embedding where the stage has one."""
        if gradients.embedding is None:
            return self.loads.hand_back(self.cell.tokens.hand_on(dx), slope)
        yield from self.embedding.backward(gradients.embedding, piece.tokens, dx)
        return None


def _opened(kv: Any, dkv: Any) -> Any:
    """Where gradients of keys and values are left, which the last slice of a sequence opens."""
    return kv.open_gradients() if kv is not None and dkv is None else dkv


def first_word(layout: ParameterLayout, name: str) -> int:
    """The first word that a rank has of the embedding or the head; 0 where it has neither."""
    return layout.part(name).start if name in layout else 0
