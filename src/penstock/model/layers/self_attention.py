"""Grouped-query attention of one layer on one slice: project, norm, rotate, attend.

Rotating and attending need no weights, so they stand by themselves: a schedule may put them on
another device than the projection.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.slice_attention import (
    SliceOfLayer,
    attention_backward,
    attention_forward,
)
from penstock.model.kernels.choice import fusible
from penstock.model.layers.linear import Queue
from penstock.model.layers.qkv_projection import (
    HeadNormsSaved,
    Heads,
    QkvProjection,
    QkvWeights,
    qkv_width,
    split_heads,
)
from penstock.model.layers.rope import rotate, rotate_back_into, rotate_into


class SliceContext(NamedTuple):
    """What a layer is told about the slice, beside its input."""

    at: SliceOfLayer
    cos: Tensor
    """[tokens, 1, head_size]"""
    sin: Tensor
    written: bool
    """Whether the memory has the slice's keys and values already, so that they are not written."""


class SelfAttentionSaved(NamedTuple):
    """What the backward of attention needs, and its output."""

    out: Tensor
    """[tokens, heads x head_size]"""
    attention: AttentionSaved
    norms: HeadNormsSaved | None


class SelfAttention:
    """The attention of a layer, up to the projection that leads back."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.projection = QkvProjection(config)

    def forward(self, weights: QkvWeights, a: Tensor, context: SliceContext) -> SelfAttentionSaved:
        heads, norms = self.projection.forward(weights, a, context.at.piece.rows)
        if fusible(a):
            return SelfAttentionSaved(
                *attend(rotate_heads_in_place(heads, context), context), norms
            )
        # Values are a view of the projection; kept so, they would keep all of it. With norms on
        # queries and keys it is kept anyway.
        if norms is None and context.at.memory is None:
            heads = heads._replace(v=heads.v.contiguous())
        heads = rotate_heads(heads, context)  # which ends the projection before attention begins
        return SelfAttentionSaved(*attend(heads, context), norms)

    def backward(
        self,
        weights: QkvWeights,
        gradients: QkvWeights,
        a: Tensor,
        saved: SelfAttentionSaved,
        d_out: Tensor,
        context: SliceContext,
        queue: Queue,
    ) -> Tensor:
        """The gradient of the normed input; `d_out` is that of the output."""
        rows = context.at.piece.rows
        d_heads = attend_backward(d_out, saved.attention, context)
        d = a.new_empty((len(a), qkv_width(self.config)))
        rotate_heads_back(d_heads, context, split_heads(self.config, d, rows))
        return self.projection.backward(weights, gradients, a, saved.norms, d, rows, queue)


def rotate_heads(heads: Heads, context: SliceContext) -> Heads:
    """Queries and keys turned to their positions; all are [rows, heads, tokens, head_size]."""
    q, k = (rotate(x, context.cos, context.sin).transpose(1, 2) for x in heads[:2])
    return Heads(q, k, heads.v.transpose(1, 2))


def rotate_heads_in_place(heads: Heads, context: SliceContext) -> Heads:
    """As `rotate_heads`, where they lie: side by side in the projection, which nobody else reads,
    or where their norms put them. Where keys and values are copied into the memory of a sequence,
    the queries move out too, for as a view they would keep all of the projection."""
    q, k, v = heads
    if context.at.memory is not None:
        q = torch.empty_like(q, memory_format=torch.contiguous_format)
    rotate_into(q, heads.q, context.cos, context.sin)
    rotate_into(k, heads.k, context.cos, context.sin)
    return Heads(*(x.transpose(1, 2) for x in (q, k, v)))


def attend(heads: Heads, context: SliceContext) -> tuple[Tensor, AttentionSaved]:
    """The output [rows x tokens, heads x head_size] of rotated heads, and what the backward
    needs."""
    k, v = _keys_and_values(heads.k, heads.v, context)
    out, lse = attention_forward(heads.q, k, v, context.at)
    rows, count, tokens, size = out.shape
    flat = out.transpose(1, 2).reshape(rows * tokens, count * size)
    return flat, AttentionSaved(heads.q, k, v, out, lse)


def attend_backward(d_out: Tensor, saved: AttentionSaved, context: SliceContext) -> Heads:
    """The gradients of rotated heads."""
    rows, heads, tokens, size = saved.q.shape
    g = d_out.view(rows, tokens, heads, size).transpose(1, 2)
    return Heads(*attention_backward(g, saved, context.at))


def rotate_heads_back(d: Heads, context: SliceContext, into: Heads) -> None:
    """Write the gradients of queries, keys and values as they were before they were rotated."""
    into.v.copy_(d.v.transpose(1, 2))
    for to, x in ((into.q, d.q), (into.k, d.k)):
        rotate_back_into(to, x.transpose(1, 2), context.cos, context.sin)


def _keys_and_values(k: Tensor, v: Tensor, context: SliceContext) -> tuple[Tensor, Tensor]:
    """The slice's keys and values where they stay: in the memory, or by themselves."""
    at = context.at
    if at.memory is None:
        return k, v
    if not context.written:
        at.memory.write(at.layer, at.piece, k, v)
    here = slice(at.piece.start, at.piece.end)
    keys, values = at.keys_and_values(k, v)
    return keys[:, :, here], values[:, :, here]
