"""A stage of a decoder: some layers, with the embedding in front of the first and the head behind
the last.

Nothing here is recorded by autograd: every layer's backward is written out
(model/layers/decoder_layer.py), so that what is kept, what is put off and what is added up in which
order is plain to see.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.errors import RunError
from penstock.model.attention.explicit import Place
from penstock.model.attention.memory import KeyValues
from penstock.model.layers.decoder_layer import Block, Kept
from penstock.model.layers.final import Ended, Ending
from penstock.model.layers.linear import Queue, work_off
from penstock.model.stages.context import Context
from penstock.model.stages.piece import Piece
from penstock.model.stages.stage import Backward, Forward
from penstock.model.stages.weights import Vector, Weights


class Act(NamedTuple):
    """What a stage keeps of one slice."""

    layers: list[Kept]
    ended: Ended | None


class DecoderStage:
    """Layers `layers` of a model; the first stage embeds, the last one computes the loss."""

    def __init__(self, config: ModelConfig, layers: range, weights: Weights, length: int) -> None:
        """`length` is the longest sequence it will see."""
        self.config, self.weights = config, weights
        self.blocks = [Block(config, weights, layer) for layer in layers]
        self.embedding = weights.vector(EMBEDDING) if EMBEDDING in weights.sizes else None
        self.ending = Ending(config, weights) if HEAD in weights.sizes else None
        self.context = Context(config, len(self.blocks), length, weights.value)

    @torch.no_grad()
    def forward(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memory = self.context.memory(piece, kv)
        act, out = self._through(piece, self._entered(piece, x), memory, remembered=False)
        return out, act, memory

    @torch.no_grad()
    def forward_light(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memory = self.context.memory(piece, kv)
        y = self._forgetting(piece, self._entered(piece, x), memory)
        return self._out(y, piece)[0], x, memory

    @torch.no_grad()
    def recompute(self, piece: Piece, ckpt: Any, kv: Any) -> Act:
        return self._through(piece, self._entered(piece, ckpt), kv, remembered=True)[0]

    @torch.no_grad()
    def input_gradient(
        self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any
    ) -> Backward:
        return self._back(piece, act, g, kv, dkv, lambda queue: None)

    @torch.no_grad()
    def backward(self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Backward:
        """Weight gradients follow layer by layer, so that little waits for them."""
        return self._back(piece, act, g, kv, dkv, work_off)

    @torch.no_grad()
    def weight_gradient(self, piece: Piece, stash: Any) -> None:
        work_off(stash)

    @torch.no_grad()
    def logits(self, piece: Piece, x: Tensor | None, kv: Any = None) -> Tensor:
        """Scores of every word [rows, tokens, vocabulary]; of a stage that has the head."""
        if self.ending is None:
            raise RunError("a stage without the head has no logits", hint="ask the last stage")
        y = self._forgetting(piece, self._entered(piece, x), self.context.memory(piece, kv))
        return self.ending.logits(y).view(piece.rows, piece.end - piece.start, -1)

    def _back(
        self,
        piece: Piece,
        act: Act,
        g: Tensor | None,
        kv: KeyValues | None,
        dkv: Any,
        after_layer: Callable[[Queue], None],
    ) -> Backward:
        queue: Queue = []
        if kv is not None and dkv is None:
            dkv = kv.open_gradients()
        dx = self.ending.backward(act.ended, piece) if act.ended and self.ending else stacked(g)
        for number in reversed(range(len(self.blocks))):
            setting = self.context.setting(Place(piece, kv, number), remembered=True)
            dx = self.blocks[number].backward(act.layers.pop(), dx, setting, queue)
            after_layer(queue)
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        if self.embedding is None:
            return dx.view(piece.rows, -1, dx.shape[-1]), dkv, queue
        add_rows(self.embedding, piece.tokens, dx)
        return None, dkv, queue

    def _entered(self, piece: Piece, x: Tensor | None) -> Tensor:
        """The stage's input, rows one behind the other."""
        if self.embedding is None:
            return stacked(x)
        return self.embedding.value[piece.tokens.flatten()]

    def _through(
        self, piece: Piece, x: Tensor, memory: KeyValues | None, remembered: bool
    ) -> tuple[Act, Tensor]:
        """What is kept, and the output: the next stage's input or the loss."""
        kept: list[Kept] = []
        for number, block in enumerate(self.blocks):
            setting = self.context.setting(Place(piece, memory, number), remembered)
            x, saved = block.forward(x, setting)
            kept.append(saved)
        out, ended = self._out(x, piece)
        return Act(kept, ended), out

    def _out(self, x: Tensor, piece: Piece) -> tuple[Tensor, Ended | None]:
        if self.ending is not None:
            return self.ending.forward(x, piece)
        return x.view(piece.rows, -1, x.shape[-1]), None

    def _forgetting(self, piece: Piece, x: Tensor, memory: KeyValues | None) -> Tensor:
        """The output of the layers, each of which lets go of what it keeps."""
        for number, block in enumerate(self.blocks):
            setting = self.context.setting(Place(piece, memory, number), remembered=False)
            x = block.forward(x, setting)[0]
        return x


def stacked(x: Tensor | None) -> Tensor:
    """[rows, tokens, hidden] -> [rows x tokens, hidden]"""
    assert x is not None  # only the first stage has no input, only the last one no gradient
    return x.view(-1, x.shape[-1])


def add_rows(embedding: Vector, tokens: Tensor, dx: Tensor) -> None:
    """Add the gradient of each token's vector to its row."""
    embedding.grad.index_add_(0, tokens.flatten(), dx.to(embedding.grad.dtype))
