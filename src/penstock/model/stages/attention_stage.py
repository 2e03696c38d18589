"""Attention as a stage of its own: it has no weights, and any device may run it."""

from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.piece import Piece
from penstock.model.layers.cell_attention import CellAttention
from penstock.model.layers.qkv_projection import qkv_width, split_heads
from penstock.model.layers.self_attention import rotate_heads, rotate_heads_back
from penstock.model.parallel.cell import SINGLE_RANK, Cell, begun_in_cell
from penstock.model.parallel.group import Work
from penstock.model.stages.beside import attention_width, join_beside, split_beside
from penstock.model.stages.context import SequenceContext
from penstock.model.stages.stage import Backward, Forward


class AttentionStage:
    """The attention of a layer; the layer's input passes through untouched.

    What comes in is queries, keys and values, and behind them that input, all flat.
    """

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        length: int,
        like: Tensor,
        cell: Cell = SINGLE_RANK,
    ) -> None:
        """`config` has the heads of this rank's matrices, `layer` is its number, `length` the
        longest sequence it will see, `like` has its type and device."""
        self.config, self.cell = config, cell
        self.context = SequenceContext(config, range(layer, layer + 1), length, like, cell)
        self.attention = CellAttention(config, cell)

    def views(self, flat: Tensor, frozen: Tensor | None = None) -> None:
        """There are no weights to see."""
        return

    @begun_in_cell
    @torch.no_grad()
    def forward(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Work[Forward]:
        memory = self.context.memory(piece, kv)
        out, saved = yield from self._attend(piece, x, memory, written=False)
        return out, saved, memory

    @begun_in_cell
    @torch.no_grad()
    def forward_light(
        self, weights: None, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[Forward]:
        memory = self.context.memory(piece, kv)
        out, _ = yield from self._attend(piece, x, memory, written=False)
        return out, x, memory

    evaluate = forward_light

    @begun_in_cell
    @torch.no_grad()
    def recompute(self, weights: None, piece: Piece, ckpt: Any, kv: Any) -> Work[AttentionSaved]:
        return (yield from self._attend(piece, ckpt, kv, written=True))[1]

    @begun_in_cell
    @torch.no_grad()
    def backward(
        self,
        weights: None,
        gradients: None,
        piece: Piece,
        act: AttentionSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Work[Backward]:
        """There is no weight, so an input gradient is all there is."""
        if kv is not None and dkv is None:
            dkv = kv.open_gradients()
        d_attended, beside = split_beside(g, piece, attention_width(self.config))
        context = self.context.of_slice(piece, kv, written=True)(0)
        d_heads = yield from self.attention.backward(d_attended, act, context)
        out = beside.new_empty(len(d_attended) * qkv_width(self.config) + len(beside))
        d, past = split_beside(out, piece, qkv_width(self.config))
        rotate_heads_back(d_heads, context, split_heads(self.config, d, piece.rows))
        past.copy_(beside)
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        return out, dkv, None, None

    input_gradient = backward

    def weight_gradient(self, gradients: None, piece: Piece, stash: Any) -> None:
        raise AssertionError("attention has no weights")

    def _attend(
        self, piece: Piece, x: Tensor | None, memory: Any, written: bool
    ) -> Work[tuple[Tensor, AttentionSaved]]:
        qkv, beside = split_beside(x, piece, qkv_width(self.config))
        heads = split_heads(self.config, qkv, piece.rows)
        if memory is None:
            heads = heads._replace(v=heads.v.contiguous())  # a view would keep all of the input
        context = self.context.of_slice(piece, memory, written=written)(0)
        attended, saved = yield from self.attention.forward(rotate_heads(heads, context), context)
        return join_beside(attended, beside), saved
