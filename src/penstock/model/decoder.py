"""A stage of a decoder: some layers, with the embedding in front of the first and the head behind
the last.

Nothing here is recorded by autograd: every layer's backward is written out (model/block.py), so
that what is kept, what is put off and what is added up in which order is plain to see.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.cost.architecture import ModelConfig
from penstock.model.attention.explicit import Place
from penstock.model.attention.memory import KeyValues
from penstock.model.block import Block, Kept
from penstock.model.head import loss_backward, loss_of
from penstock.model.linear import Queue, linear, work_off
from penstock.model.norm import norm, norm_backward
from penstock.model.piece import Piece
from penstock.model.rope import tables
from penstock.model.self_attention import Setting
from penstock.model.shapes import EMBEDDING, LAST_NORM
from penstock.model.weights import Vector, Weights
from penstock.run.stage import Backward, Forward


class Ended(NamedTuple):
    """What the backward of the last norm and the loss needs."""

    x: Tensor
    r: Tensor
    normed: Tensor
    lse: Tensor


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
        self.last_norm = weights.vector(LAST_NORM) if LAST_NORM in weights.sizes else None
        self.head = weights.matrix("lm_head") if self.last_norm else None
        where = weights.value.device
        cos, sin = tables(config, range(length), weights.value.dtype, where)
        self.cos, self.sin = cos.unsqueeze(1), sin.unsqueeze(1)

    @torch.no_grad()
    def forward(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memory = self._memory(piece, kv)
        act, out = self._through(piece, self._entered(piece, x), memory, remembered=False)
        return Forward(out, act, memory)

    @torch.no_grad()
    def forward_light(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memory = self._memory(piece, kv)
        _, out = self._through(piece, self._entered(piece, x), memory, remembered=False)
        return Forward(out, x, memory)

    @torch.no_grad()
    def recompute(self, piece: Piece, ckpt: Any, kv: Any) -> Act:
        return self._through(piece, self._entered(piece, ckpt), kv, remembered=True)[0]

    @torch.no_grad()
    def input_gradient(
        self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any
    ) -> Backward:
        queue: Queue = []
        if kv is not None and dkv is None:
            dkv = kv.open_gradients()
        dx = self._left(piece, act.ended) if act.ended else _stacked(g)
        for number in reversed(range(len(self.blocks))):
            setting = self._setting(Place(piece, kv, number), remembered=True)
            dx = self.blocks[number].backward(act.layers.pop(), dx, setting, queue)
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        if self.embedding is None:
            return Backward(dx.view(piece.rows, -1, dx.shape[-1]), dkv, queue)
        _add_rows(self.embedding, piece.tokens, dx)
        return Backward(None, dkv, queue)

    @torch.no_grad()
    def weight_gradient(self, piece: Piece, stash: Any) -> None:
        work_off(stash)

    @torch.no_grad()
    def logits(self, piece: Piece, x: Tensor | None, kv: Any = None) -> Tensor:
        """Scores of every word [rows, tokens, vocabulary], for a stage that has the head."""
        y, _ = self._layers(piece, self._entered(piece, x), self._memory(piece, kv), False)
        assert self.last_norm is not None and self.head is not None
        normed, _ = norm(self.last_norm, y, self.config.norm_epsilon)
        return linear(self.head, normed).view(piece.rows, piece.end - piece.start, -1)

    def _entered(self, piece: Piece, x: Tensor | None) -> Tensor:
        """The stage's input, rows one behind the other."""
        if self.embedding is None:
            return _stacked(x)
        return self.embedding.value[piece.tokens.flatten()]

    def _through(
        self, piece: Piece, x: Tensor, memory: KeyValues | None, remembered: bool
    ) -> tuple[Act, Tensor]:
        """What is kept, and the output: the next stage's input or the loss."""
        y, kept = self._layers(piece, x, memory, remembered)
        if self.last_norm is None or self.head is None:
            return Act(kept, None), y.view(piece.rows, -1, y.shape[-1])
        normed, r = norm(self.last_norm, y, self.config.norm_epsilon)
        scores = loss_of(self.head, normed, piece.labels.flatten())
        return Act(kept, Ended(y, r, normed, scores.lse)), scores.loss

    def _layers(
        self, piece: Piece, x: Tensor, memory: KeyValues | None, remembered: bool
    ) -> tuple[Tensor, list[Kept]]:
        kept: list[Kept] = []
        for number, block in enumerate(self.blocks):
            x, saved = block.forward(x, self._setting(Place(piece, memory, number), remembered))
            kept.append(saved)
        return x, kept

    def _left(self, piece: Piece, ended: Ended) -> Tensor:
        """The gradient of the last layer's output, from the loss."""
        assert self.last_norm is not None and self.head is not None
        labels = piece.labels.flatten()
        d = loss_backward(self.head, ended.normed, labels, ended.lse, piece.scale)
        return norm_backward(self.last_norm, ended.x, ended.r, d)

    def _memory(self, piece: Piece, kv: KeyValues | None) -> KeyValues | None:
        """The keys and values of the sequence, made with its first slice."""
        if piece.whole or kv is not None:
            return kv
        config, value = self.config, self.weights.value
        size = (len(self.blocks), piece.rows, config.kv_heads, piece.length, config.head_size)
        return KeyValues(*size, dtype=value.dtype, device=value.device)

    def _setting(self, place: Place, remembered: bool) -> Setting:
        turns = slice(place.piece.start, place.piece.end)
        return Setting(place, self.cos[turns], self.sin[turns], remembered)


def _stacked(x: Tensor | None) -> Tensor:
    """[rows, tokens, hidden] -> [rows x tokens, hidden]"""
    assert x is not None  # only the first stage has no input, only the last one no gradient
    return x.view(-1, x.shape[-1])


def _add_rows(embedding: Vector, tokens: Tensor, dx: Tensor) -> None:
    """Add the gradient of each token's vector to its row."""
    embedding.grad.index_add_(0, tokens.flatten(), dx.to(embedding.grad.dtype))


def decoder_stage(
    config: ModelConfig, layers: range, sizes: Mapping[str, tuple[int, ...]], length: int
) -> DecoderStage:
    """A stage in float32 on the host, for those who want one without a plan."""
    cpu = torch.device("cpu")
    weights = Weights.empty(sizes, dtype=torch.float32, main=torch.float32, device=cpu)
    return DecoderStage(config, layers, weights, length)
