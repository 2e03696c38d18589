"""Attention as a stage of its own: it has no weights, and any device may run it."""

from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.piece import Piece
from penstock.model.attention.slice_attention import SliceOfLayer
from penstock.model.layers.qkv_projection import Heads, qkv_width, split_heads
from penstock.model.layers.self_attention import (
    attend,
    attend_backward,
    rotate_heads,
    rotate_heads_back,
)
from penstock.model.stages.between_attentions import attention_width
from penstock.model.stages.context import SequenceContext
from penstock.model.stages.decoder import flatten_rows
from penstock.model.stages.stage import Backward, Forward


class AttentionStage:
    """The attention of a layer; the layer's input passes through untouched."""

    def __init__(self, config: ModelConfig, length: int, like: Tensor) -> None:
        """`length` is the longest sequence it will see, `like` has its type and device."""
        self.config = config
        self.context = SequenceContext(config, 1, length, like)

    def views(self, flat: Tensor) -> None:
        """There are no weights to see."""
        return

    @torch.no_grad()
    def forward(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memory = self.context.memory(piece, kv)
        out, saved = self._attend(piece, flatten_rows(x), memory, written=False)
        return out, saved, memory

    def forward_light(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        out, _, memory = self.forward(weights, piece, x, kv)
        return out, x, memory

    evaluate = forward_light

    @torch.no_grad()
    def recompute(self, weights: None, piece: Piece, ckpt: Any, kv: Any) -> AttentionSaved:
        return self._attend(piece, flatten_rows(ckpt), kv, written=True)[1]

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
    ) -> Backward:
        """There is no weight, so an input gradient is all there is."""
        if kv is not None and dkv is None:
            dkv = kv.open_gradients()
        d_attended, beside = flatten_rows(g).tensor_split((attention_width(self.config),), dim=1)
        context = self.context.of_slice(SliceOfLayer(piece, kv, 0), written=True)
        d_heads = attend_backward(d_attended, act, context)
        width = qkv_width(self.config)
        out = d_attended.new_empty((len(beside), width + beside.shape[1]))
        rotate_heads_back(d_heads, context, self._heads(out, piece))
        out[:, width:] = beside
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        return out.view(piece.rows, -1, out.shape[-1]), dkv, None, None

    input_gradient = backward

    def weight_gradient(self, gradients: None, piece: Piece, stash: Any) -> None:
        raise AssertionError("attention has no weights")

    def _attend(
        self, piece: Piece, x: Tensor, memory: Any, written: bool
    ) -> tuple[Tensor, AttentionSaved]:
        heads = self._heads(x, piece)
        if memory is None:
            heads = heads._replace(v=heads.v.contiguous())  # a view would keep all of the input
        context = self.context.of_slice(SliceOfLayer(piece, memory, 0), written)
        attended, saved = attend(rotate_heads(heads, context), context)
        out = torch.cat((attended, x[:, qkv_width(self.config) :]), dim=1)
        return out.view(piece.rows, -1, out.shape[-1]), saved

    def _heads(self, x: Tensor, piece: Piece) -> Heads:
        return split_heads(self.config, x[:, : qkv_width(self.config)], piece.rows)
