"""Attention as a stage of its own: it has no weights, and any device may run it."""

from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.back_end import Seen
from penstock.model.attention.explicit import Place
from penstock.model.layers.qkv_projection import Heads, parted, projected_width
from penstock.model.layers.self_attention import attend, attend_backward, turn_back, turned
from penstock.model.stages.context import Context
from penstock.model.stages.decoder import stacked
from penstock.model.stages.piece import Piece
from penstock.model.stages.segment import attended_width
from penstock.model.stages.stage import Backward, Forward


class AttentionStage:
    """The attention of a layer; the layer's input passes through untouched."""

    def __init__(self, config: ModelConfig, length: int, like: Tensor) -> None:
        """`length` is the longest sequence it will see, `like` has its type and device."""
        self.config = config
        self.context = Context(config, 1, length, like)

    @torch.no_grad()
    def forward(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memory = self.context.memory(piece, kv)
        out, seen = self._through(piece, stacked(x), memory, remembered=False)
        return out, seen, memory

    def forward_light(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        out, _, memory = self.forward(piece, x, kv)
        return out, x, memory

    @torch.no_grad()
    def recompute(self, piece: Piece, ckpt: Any, kv: Any) -> Seen:
        return self._through(piece, stacked(ckpt), kv, remembered=True)[1]

    @torch.no_grad()
    def backward(self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Backward:
        """There is no weight, so an input gradient is all there is."""
        if kv is not None and dkv is None:
            dkv = kv.open_gradients()
        d_attended, beside = stacked(g).tensor_split((attended_width(self.config),), dim=1)
        setting = self.context.setting(Place(piece, kv, 0), remembered=True)
        d_heads = attend_backward(d_attended, act, setting)
        width = projected_width(self.config)
        out = d_attended.new_empty((len(beside), width + beside.shape[1]))
        turn_back(d_heads, setting, self._heads(out, piece))
        out[:, width:] = beside
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        return out.view(piece.rows, -1, out.shape[-1]), dkv, None

    input_gradient = backward

    def weight_gradient(self, piece: Piece, stash: Any) -> None:
        raise AssertionError("attention has no weights")

    def _through(
        self, piece: Piece, x: Tensor, memory: Any, remembered: bool
    ) -> tuple[Tensor, Seen]:
        heads = self._heads(x, piece)
        if memory is None:
            heads = heads._replace(v=heads.v.contiguous())  # a view would keep all of the input
        setting = self.context.setting(Place(piece, memory, 0), remembered)
        attended, seen = attend(turned(heads, setting), setting)
        out = torch.cat((attended, x[:, projected_width(self.config) :]), dim=1)
        return out.view(piece.rows, -1, out.shape[-1]), seen

    def _heads(self, x: Tensor, piece: Piece) -> Heads:
        return parted(self.config, x[:, : projected_width(self.config)], piece.rows)
