"""Attention of rotated heads on one rank, with keys and values where they stay."""

from typing import NamedTuple

from torch import Tensor

from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.heads import Heads
from penstock.model.attention.lending import lending_forward
from penstock.model.attention.op_loans import OpLoans
from penstock.model.attention.sharing import sharing_forward
from penstock.model.attention.slice_attention import (
    SliceOfLayer,
    attention_backward,
    attention_forward,
)
from penstock.model.parallel.group import Work


class SliceContext(NamedTuple):
    """What a layer is told about the slice, beside its input."""

    at: SliceOfLayer
    cos: Tensor
    """[tokens, 1, head_size]; [rows, tokens, 1, head_size] where rows have other positions"""
    sin: Tensor
    written: bool
    """Whether the memory has the slice's keys and values already, so that they are not written."""
    query_scale: float = 1.0
    """What queries are multiplied by when they are turned."""


def attend(heads: Heads, context: SliceContext) -> tuple[Tensor, AttentionSaved]:
    """The output [rows x tokens, heads x head_size] of rotated heads, and what the backward
    needs."""
    q, k, v = placed_heads(heads, context)
    out, lse = attention_forward(q, k, v, context.at)
    return flatten_heads(out), AttentionSaved(q, k, v, out, lse)


def attend_in_turn(
    heads: Heads, context: SliceContext, loans: OpLoans
) -> Work[tuple[Tensor, AttentionSaved]]:
    """The same where other devices compute a part of it, or are helped meanwhile."""
    q, k, v = placed_heads(heads, context)
    together = sharing_forward if context.at.gives_queries else lending_forward
    out, lse = yield from together(q, k, v, context.at, loans)
    return flatten_heads(out), AttentionSaved(q, k, v, out, lse)


def flatten_heads(out: Tensor) -> Tensor:
    """[rows, heads, tokens, head_size] -> [rows x tokens, heads x head_size]"""
    rows, count, tokens, size = out.shape
    return out.transpose(1, 2).reshape(rows * tokens, count * size)


def attend_backward(d_out: Tensor, saved: AttentionSaved, context: SliceContext) -> Heads:
    """The gradients of rotated heads."""
    return Heads(*attention_backward(gradient_by_head(d_out, saved), saved, context.at))


def gradient_by_head(d_out: Tensor, saved: AttentionSaved) -> Tensor:
    """[rows x tokens, heads x head_size] -> [rows, heads, tokens, head_size]"""
    rows, heads, tokens, size = saved.q.shape
    return d_out.view(rows, tokens, heads, size).transpose(1, 2)


def placed_heads(heads: Heads, context: SliceContext) -> Heads:
    """The slice's heads, with keys and values where they stay: in the memory, or by themselves."""
    at = context.at
    if at.memory is None:
        return heads
    if not context.written:
        at.memory.write(at.layer, at.piece, heads.k, heads.v)
    here = slice(at.piece.start, at.piece.end)
    keys, values = at.keys_and_values(heads.k, heads.v)
    return Heads(heads.q, keys[:, :, here], values[:, :, here])
