"""Grouped-query attention of one layer on one slice: project, norm, turn, attend."""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.cost.architecture import ModelConfig
from penstock.model.attention.back_end import Seen
from penstock.model.attention.explicit import Place, attention_backward, attention_forward
from penstock.model.linear import Queue, linear, linear_backward
from penstock.model.norm import norm, norm_backward
from penstock.model.rope import rotate, rotate_back_into
from penstock.model.weights import Weights


class Setting(NamedTuple):
    """What a layer is told about the slice, beside its input."""

    place: Place
    cos: Tensor
    """[tokens, 1, head_size]"""
    sin: Tensor
    remembered: bool
    """Whether the memory has the slice's keys and values already, so that they are not written."""


class Normed(NamedTuple):
    """Queries and keys before their norms, and what these kept."""

    q: Tensor
    r_q: Tensor
    k: Tensor
    r_k: Tensor


class Attended(NamedTuple):
    """What the backward of attention needs, and its output."""

    out: Tensor
    """[tokens, heads x head_size]"""
    seen: Seen
    normed: Normed | None


class SelfAttention:
    """The attention of a layer, up to the projection that leads back."""

    def __init__(self, config: ModelConfig, weights: Weights, prefix: str) -> None:
        self.parts = [config.heads, config.kv_heads, config.kv_heads]
        self.head_size, self.epsilon = config.head_size, config.norm_epsilon
        self.qkv = weights.matrix(*(f"{prefix}{part}_proj" for part in "qkv"))
        names = [f"{prefix}{part}_norm.weight" for part in "qk"] if config.qk_norm else []
        self.norms = [weights.vector(name) for name in names]

    def forward(self, a: Tensor, setting: Setting) -> Attended:
        q, k, v = self._parted(linear(self.qkv, a), setting)
        normed = None
        if self.norms:
            turned_q, r_q = norm(self.norms[0], q, self.epsilon)
            turned_k, r_k = norm(self.norms[1], k, self.epsilon)
            normed, q, k = Normed(q, r_q, k, r_k), turned_q, turned_k
        q, k = (rotate(x, setting.cos, setting.sin).transpose(1, 2) for x in (q, k))
        # Values are a view of the projection; kept so, they would keep all of it. With norms on
        # queries and keys it is kept anyway.
        v = v if self.norms or setting.place.memory else v.contiguous()
        k, v = _remembered(k, v.transpose(1, 2), setting)
        out, lse = attention_forward(q, k, v, setting.place)
        flat = out.transpose(1, 2).reshape(len(a), -1)
        return Attended(flat, Seen(q, k, v, out, lse), normed)

    def backward(
        self, a: Tensor, attended: Attended, d_out: Tensor, setting: Setting, queue: Queue
    ) -> Tensor:
        """The gradient of the normed input; `d_out` is that of the output."""
        rows = setting.place.piece.rows
        g = d_out.view(rows, -1, self.parts[0], self.head_size).transpose(1, 2)
        dq, dk, dv = attention_backward(g, attended.seen, setting.place)
        d = torch.empty((len(a), sum(self.parts) * self.head_size), dtype=a.dtype, device=a.device)
        to_q, to_k, to_v = self._parted(d, setting)
        to_v.copy_(dv.transpose(1, 2))
        for to, x in ((to_q, dq), (to_k, dk)):
            rotate_back_into(to, x.transpose(1, 2), setting.cos, setting.sin)
        if attended.normed is not None:
            self._through_norms(attended.normed, to_q, to_k)
        return linear_backward(self.qkv, a, d, queue)

    def _through_norms(self, normed: Normed, to_q: Tensor, to_k: Tensor) -> None:
        to_q.copy_(norm_backward(self.norms[0], normed.q, normed.r_q, to_q))
        to_k.copy_(norm_backward(self.norms[1], normed.k, normed.r_k, to_k))

    def _parted(self, qkv: Tensor, setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
        """Views of queries, keys and values, each [rows, tokens, heads, head_size]."""
        rows = setting.place.piece.rows
        heads = qkv.view(rows, -1, sum(self.parts), self.head_size)
        q, k, v = torch.split(heads, self.parts, dim=2)
        return q, k, v


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
