"""A model cut at its attention, which has no weights and so can run on any device.

    segment 0          embedding, and what leads into the attention of layer 0
    attention of 0     ...
    segment j          what follows the attention of layer j - 1, and leads into that of layer j
    segment L          what follows the last attention, final norm, head and loss

Between them travel, side by side in one tensor, queries, keys, values and the layer's input on the
way to attention, and its output and the layer's input on the way back.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import EMBEDDING, HEAD, layer_prefix
from penstock.model.layers.final import Ended, Ending
from penstock.model.layers.linear import Queue, work_off
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.post_attention import Follow, Followed
from penstock.model.layers.qkv_projection import Normed, Projection
from penstock.model.stages.decoder import add_rows, stacked
from penstock.model.stages.piece import Piece
from penstock.model.stages.stage import Backward, Forward
from penstock.model.stages.weights import Weights


def attended_width(config: ModelConfig) -> int:
    """Features of the output of attention."""
    return config.heads * config.head_size


class Led(NamedTuple):
    """What is kept in front of attention."""

    x: Tensor
    r: Tensor
    a: Tensor
    """The normed input."""
    normed: Normed | None


class Lead:
    """The first part of a layer, up to queries, keys and values."""

    def __init__(self, config: ModelConfig, weights: Weights, layer: int) -> None:
        prefix = layer_prefix(layer)
        self.epsilon = config.norm_epsilon
        self.norm = weights.vector(f"{prefix}input_layernorm.weight")
        self.projection = Projection(config, weights, f"{prefix}self_attn.")

    def forward(self, x: Tensor, rows: int) -> tuple[Tensor, Led]:
        """Queries, keys, values and the input, side by side."""
        a, r = norm(self.norm, x, self.epsilon)
        heads, normed = self.projection.forward(a, rows)
        flat = [part.reshape(len(x), -1) for part in heads]
        return torch.cat((*flat, x), dim=1), Led(x, r, a, normed)

    def backward(self, led: Led, d: Tensor, rows: int, queue: Queue) -> Tensor:
        """The gradient of the input; `d` is that of the four, side by side."""
        width = d.shape[1] - led.x.shape[1]
        da = self.projection.backward(led.a, led.normed, d[:, :width].contiguous(), rows, queue)
        return norm_backward(self.norm, led.x, led.r, da).add_(d[:, width:])


class Act(NamedTuple):
    """What a segment keeps of one slice: of what follows attention, of what leads into the next,
    of the end."""

    attended: Tensor | None
    followed: Followed | None
    led: Led | None
    ended: Ended | None


class SegmentStage:
    """The weights between two attentions."""

    def __init__(self, config: ModelConfig, weights: Weights, segment: int) -> None:
        self.config, self.weights = config, weights
        self.embedding = weights.vector(EMBEDDING) if EMBEDDING in weights.sizes else None
        self.follow = Follow(config, weights, segment - 1) if segment else None
        self.ending = Ending(config, weights) if HEAD in weights.sizes else None
        self.lead = None if self.ending else Lead(config, weights, segment)

    @torch.no_grad()
    def forward(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        y, attended, followed = self._entered(piece, x)
        if self.ending is not None:
            out, ended = self.ending.forward(y, piece)
            return out, Act(attended, followed, None, ended), None
        assert self.lead is not None
        out, led = self.lead.forward(y, piece.rows)
        act = Act(attended, followed, led, None)
        return out.view(piece.rows, -1, out.shape[-1]), act, None

    def forward_light(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        return self.forward(piece, x, kv)[0], x, None

    def recompute(self, piece: Piece, ckpt: Any, kv: Any) -> Act:
        act: Act = self.forward(piece, ckpt, kv)[1]
        return act

    @torch.no_grad()
    def input_gradient(
        self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any
    ) -> Backward:
        queue: Queue = []
        dy = self._before_the_end(piece, act, g, queue)
        if self.embedding is not None:
            add_rows(self.embedding, piece.tokens, dy)
            return None, None, queue
        assert self.follow is not None
        out = torch.cat(self.follow.backward(act.attended, act.followed, dy, queue), dim=1)
        return out.view(piece.rows, -1, out.shape[-1]), None, queue

    def backward(self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Backward:
        out, _, queue = self.input_gradient(piece, act, g, kv, dkv)
        self.weight_gradient(piece, queue)
        return out, None, None

    @torch.no_grad()
    def weight_gradient(self, piece: Piece, stash: Any) -> None:
        work_off(stash)

    def _entered(
        self, piece: Piece, x: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Followed | None]:
        """The layer's output, and what is kept of what follows attention."""
        if self.embedding is not None:
            return self.embedding.value[piece.tokens.flatten()], None, None
        assert self.follow is not None
        attended, beside = stacked(x).tensor_split((attended_width(self.config),), dim=1)
        y, followed = self.follow.forward(attended, beside)
        return y, attended, followed

    def _before_the_end(self, piece: Piece, act: Act, g: Tensor | None, queue: Queue) -> Tensor:
        """The gradient of the layer's output."""
        if self.ending is not None:
            assert act.ended is not None
            return self.ending.backward(act.ended, piece)
        assert self.lead is not None
        assert act.led is not None
        return self.lead.backward(act.led, stacked(g), piece.rows, queue)
