"""Grouped-query attention of one layer on one slice: project, norm, rotate, attend.

Rotating and attending need no weights, so they stand by themselves: a schedule may put them on
another device than the projection.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.heads import Heads
from penstock.model.kernels.choice import fusible
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.cell_attention import CellAttention
from penstock.model.layers.linear import Queue
from penstock.model.layers.qkv_projection import (
    HeadNormsSaved,
    QkvProjection,
    QkvWeights,
    qkv_width,
    split_heads,
)
from penstock.model.layers.rope import rotate, rotate_back_into, rotate_into
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens, wait_for


class SelfAttentionSaved(NamedTuple):
    """What the backward of attention needs, and its output."""

    out: Tensor
    """[tokens, heads x head_size]"""
    attention: AttentionSaved
    norms: HeadNormsSaved | None


class SelfAttention:
    """The attention of a layer, up to the projection that leads back."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK) -> None:
        """`config` has the heads of this rank's matrices."""
        self.config, self.tokens = config, cell.tokens
        self.projection = QkvProjection(config, cell)
        self.attention = CellAttention(config, cell)

    def forward(
        self, weights: QkvWeights, a: Tensor, context: SliceContext
    ) -> Work[SelfAttentionSaved]:
        """Of the normed input, or what this rank holds of it."""
        piece = context.at.piece
        whole = yield from gather_tokens(self.tokens, a, piece.tokens.numel())
        heads, norms = yield from self.projection.forward(weights, whole, piece.rows)
        del whole
        # A name for the rotated heads here would keep them while attention runs; the projection
        # ends before.
        rotated = [_rotated(heads, norms, context)]
        del heads
        out, saved = yield from self.attention.forward(rotated.pop(), context)
        return SelfAttentionSaved(out, saved, norms)

    def backward(
        self,
        weights: QkvWeights,
        gradients: QkvWeights,
        a: Tensor,
        saved: SelfAttentionSaved,
        d_out: Tensor,
        context: SliceContext,
        queue: Queue,
    ) -> Work[Tensor]:
        """The gradient of the normed input; `d_out` is that of the output."""
        piece = context.at.piece
        whole, pending = self.tokens.gather(a, piece.tokens.numel())
        d_heads = yield from self.attention.backward(d_out, saved.attention, context)
        d = d_out.new_empty((len(d_out), qkv_width(self.config)))
        rotate_heads_back(d_heads, context, split_heads(self.config, d, piece.rows))
        del d_heads
        yield from wait_for(pending)
        part = yield from self.projection.backward(
            weights, gradients, whole, saved.norms, d, piece.rows, queue
        )
        del whole, pending, d
        return (yield from add_up_tokens(self.tokens, part, queue.meanwhile))


def _rotated(heads: Heads, norms: HeadNormsSaved | None, context: SliceContext) -> Heads:
    if fusible(heads.q):
        return rotate_heads_in_place(heads, context)
    # Values are a view of the projection; kept so, they would keep all of it. With norms on
    # queries and keys it is kept anyway.
    if norms is None and context.at.memory is None:
        heads = heads._replace(v=heads.v.contiguous())
    return rotate_heads(heads, context)


def rotate_heads(heads: Heads, context: SliceContext) -> Heads:
    """Queries and keys turned to their positions; all are [rows, heads, tokens, head_size]."""
    q, k = (rotate(x, context.cos, context.sin).transpose(1, 2) for x in heads[:2])
    return Heads(_scaled(q, context), k, heads.v.transpose(1, 2))


def rotate_heads_in_place(heads: Heads, context: SliceContext) -> Heads:
    """As `rotate_heads`, where they lie: side by side in the projection, which nobody else reads,
    or where their norms put them. Where keys and values are copied into the memory of a sequence,
    the queries move out too, for as a view they would keep all of the projection."""
    q, k, v = heads
    if context.at.memory is not None:
        q = torch.empty_like(q, memory_format=torch.contiguous_format)
    rotate_into(q, heads.q, context.cos, context.sin)
    rotate_into(k, heads.k, context.cos, context.sin)
    _scaled(q, context)
    return Heads(*(x.transpose(1, 2) for x in (q, k, v)))


def rotate_heads_back(d: Heads, context: SliceContext, into: Heads) -> None:
    """Write the gradients of queries, keys and values as they were before they were rotated."""
    into.v.copy_(d.v.transpose(1, 2))
    for to, x in ((into.q, d.q), (into.k, d.k)):
        rotate_back_into(to, x.transpose(1, 2), context.cos, context.sin)
    _scaled(into.q, context)


def _scaled(q: Tensor, context: SliceContext) -> Tensor:
    """Queries multiplied where they lie; their gradient too, since both ways are the same."""
    return q if context.query_scale == 1 else q.mul_(context.query_scale)
