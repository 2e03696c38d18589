"""Attention of one slice: causal on itself, full on the slices before it.

Joining the keys of all slices so far would copy and keep them once per slice. Here the keys and
values of a slice are written into the microbatch's memory, and a slice reads the whole prefix from
there; in the backward it leaves the gradients of earlier keys in the memory, from the last slice to
the first, and finds in it what later slices left for its own.

Tensors are [rows, heads, tokens, head_size]. Fastest is a transposed view of memory that lies token
by token, [rows, tokens, heads, head_size], as projections give it; outputs and gradients lie so
too, and `.transpose(1, 2).flatten(2)` of them costs nothing.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.attention_rule import PLAIN_ATTENTION, AttentionRule
from penstock.errors import RunError
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.groups import Group, join_rows, row_groups
from penstock.model.attention.memory import KeyValues, Relay
from penstock.model.attention.piece import Piece
from penstock.model.attention.table import back_end_for


class SliceOfLayer(NamedTuple):
    """Which attention is meant: of a layer, on a slice, with the keys of the slices before it."""

    piece: Piece
    memory: KeyValues | None
    """None where the slice is the whole sequence."""
    layer: int
    rule: AttentionRule = PLAIN_ATTENTION
    """That of the layer, for sequences that end with the slice."""

    @property
    def gives_queries(self) -> bool:
        """Whether other devices attend with some of the queries; not in a window, where little is
        to be computed."""
        loans = self.piece.loans
        return loans is not None and loans.gives_queries and self.rule.window is None

    def keys_and_values(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the whole prefix."""
        if self.memory is not None:
            return self.memory.keys[self.layer], self.memory.values[self.layer]
        if not self.piece.whole:
            raise RunError(
                f"slice {self.piece.slice} of microbatch {self.piece.mb} has no memory of the "
                "slices before it",
                hint="give the KeyValues of its microbatch",
            )
        return k, v


def attention_forward(q: Tensor, k: Tensor, v: Tensor, at: SliceOfLayer) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp; the keys and values of the slice are in the memory already."""
    if at.piece.start == at.piece.end:  # a rank that no group has; kernels refuse it
        return torch.empty_like(q), q.new_empty(q.shape[:3])
    back_end, piece = back_end_for(q, at.piece, at.rule), at.piece
    keys, values = at.keys_and_values(k, v)
    each = [
        back_end.forward(
            group.of(q), group.keys(keys, piece), group.keys(values, piece), group.reach
        )
        for group in row_groups(piece, at.rule.window)
    ]
    out, lse = (join_rows(results) for results in zip(*each))
    return out, lse


def attention_backward(
    g: Tensor, saved: AttentionSaved, at: SliceOfLayer
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the slice's queries, keys and values, with what later slices left for them.

    `saved` has the slice's own keys and values; those before it come from the memory.
    """
    if at.piece.start == at.piece.end:
        return torch.empty_like(saved.q), torch.empty_like(saved.k), torch.empty_like(saved.v)
    g = g if g.stride(-1) == 1 else g.contiguous()
    groups = row_groups(at.piece, at.rule.window)
    each = [_backward_of(g, saved, group, at) for group in groups]
    dq, dk, dv = (join_rows(gradients) for gradients in zip(*each))
    return dq, dk, dv


def _backward_of(
    g: Tensor, saved: AttentionSaved, group: Group, at: SliceOfLayer
) -> tuple[Tensor, Tensor, Tensor]:
    keys, values = at.keys_and_values(saved.k, saved.v)
    here = AttentionSaved(
        group.of(saved.q),
        group.keys(keys, at.piece),
        group.keys(values, at.piece),
        group.of(saved.out),
        group.of(saved.lse),
    )
    back_end = back_end_for(saved.q, at.piece, at.rule)
    if at.memory is None:
        return back_end.backward(group.of(g), here, group.reach, _nowhere)
    relay = Relay(at.memory, at.layer, group.rows, at.piece, group.reach.past)
    dq, dk, dv = back_end.backward(group.of(g), here, group.reach, relay.leave)
    relay.take(dk, dv)
    return dq, dk, dv


def _nowhere(keys: range, dk: Tensor, dv: Tensor) -> None:
    raise AssertionError(f"a whole sequence has no keys {keys} before it")
