"""Grouped-query attention of one layer on one slice: project, norm, turn, attend.

Turning and attending need no weights, so they stand by themselves: a schedule may put them on
another device than the projection.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.back_end import Seen
from penstock.model.attention.explicit import Place, attention_backward, attention_forward
from penstock.model.layers.linear import Queue
from penstock.model.layers.qkv_projection import Heads, Normed, Projection, parted, projected_width
from penstock.model.layers.rope import rotate, rotate_back_into
from penstock.model.stages.weights import Weights


class Setting(NamedTuple):
    """What a layer is told about the slice, beside its input."""

    place: Place
    cos: Tensor
    """[tokens, 1, head_size]"""
    sin: Tensor
    remembered: bool
    """Whether the memory has the slice's keys and values already, so that they are not written."""


class Attended(NamedTuple):
    """What the backward of attention needs, and its output."""

    out: Tensor
    """[tokens, heads x head_size]"""
    seen: Seen
    normed: Normed | None


class SelfAttention:
    """The attention of a layer, up to the projection that leads back."""

    def __init__(self, config: ModelConfig, weights: Weights, prefix: str) -> None:
        self.config = config
        self.projection = Projection(config, weights, prefix)

    def forward(self, a: Tensor, setting: Setting) -> Attended:
        heads, normed = self.projection.forward(a, setting.place.piece.rows)
        # Values are a view of the projection; kept so, they would keep all of it. With norms on
        # queries and keys it is kept anyway.
        if normed is None and setting.place.memory is None:
            heads = heads._replace(v=heads.v.contiguous())
        heads = turned(heads, setting)  # which ends the projection before attention begins
        return Attended(*attend(heads, setting), normed)

    def backward(
        self, a: Tensor, attended: Attended, d_out: Tensor, setting: Setting, queue: Queue
    ) -> Tensor:
        """The gradient of the normed input; `d_out` is that of the output."""
        rows = setting.place.piece.rows
        d_heads = attend_backward(d_out, attended.seen, setting)
        d = a.new_empty((len(a), projected_width(self.config)))
        turn_back(d_heads, setting, parted(self.config, d, rows))
        return self.projection.backward(a, attended.normed, d, rows, queue)


def turned(heads: Heads, setting: Setting) -> Heads:
    """Queries and keys turned to their positions; all are [rows, heads, tokens, head_size]."""
    q, k = (rotate(x, setting.cos, setting.sin).transpose(1, 2) for x in heads[:2])
    return Heads(q, k, heads.v.transpose(1, 2))


def attend(heads: Heads, setting: Setting) -> tuple[Tensor, Seen]:
    """The output [rows x tokens, heads x head_size] of what is turned, and what the backward
    needs."""
    k, v = _remembered(heads.k, heads.v, setting)
    out, lse = attention_forward(heads.q, k, v, setting.place)
    rows, count, tokens, size = out.shape
    flat = out.transpose(1, 2).reshape(rows * tokens, count * size)
    return flat, Seen(heads.q, k, v, out, lse)


def attend_backward(d_out: Tensor, seen: Seen, setting: Setting) -> Heads:
    """The gradients of what was turned."""
    rows, heads, tokens, size = seen.q.shape
    g = d_out.view(rows, tokens, heads, size).transpose(1, 2)
    return Heads(*attention_backward(g, seen, setting.place))


def turn_back(d: Heads, setting: Setting, into: Heads) -> None:
    """Write the gradients of queries, keys and values as they were before they were turned."""
    into.v.copy_(d.v.transpose(1, 2))
    for to, x in ((into.q, d.q), (into.k, d.k)):
        rotate_back_into(to, x.transpose(1, 2), setting.cos, setting.sin)


def _remembered(k: Tensor, v: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """The slice's keys and values where they stay: in the memory, or by themselves."""
    place = setting.place
    if place.memory is None:
        return k, v
    if not setting.remembered:
        place.memory.write(place.layer, place.piece, k, v)
    here = slice(place.piece.start, place.piece.end)
    keys, values = place.keys_and_values(k, v)
    return keys[:, :, here], values[:, :, here]
