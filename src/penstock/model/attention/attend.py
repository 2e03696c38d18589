"""Attention of one slice: causal on itself, full on the slices before it.

Joining the keys of all slices so far would copy and keep them once per slice. Here a slice writes
its keys and values into the microbatch's memory and reads the whole prefix from there; in the
backward it leaves the gradients of earlier keys in the memory, from the last slice to the first,
and finds in it what later slices left for its own.

Tensors are [rows, heads, tokens, head_size]. Fastest is a transposed view of memory that lies token
by token, [rows, tokens, heads, head_size], as projections give it; outputs and gradients lie so
too, and `.transpose(1, 2).flatten(2)` of them costs nothing.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.attention.back_end import Seen
from penstock.model.attention.memory import KeyValues, Relay
from penstock.model.attention.reach import Reach, reach_of
from penstock.model.attention.table import back_end_for
from penstock.model.piece import Piece


def attend(
    q: Tensor, k: Tensor, v: Tensor, memory: KeyValues | None, layer: int, piece: Piece
) -> Tensor:
    """Write the slice's keys and values to the memory and attend to all up to it.

    A piece that is the whole sequence needs no memory.
    """
    if memory is not None:
        memory.write(layer, piece, k, v)
    return replay(q, k, v, memory, layer, piece)


def replay(
    q: Tensor, k: Tensor, v: Tensor, memory: KeyValues | None, layer: int, piece: Piece
) -> Tensor:
    """As `attend`, with the keys and values that the memory already has; k and v get gradients."""
    if memory is None and not piece.whole:
        raise RunError(
            f"slice {piece.slice} of microbatch {piece.mb} has no memory of the slices before it",
            hint="give the KeyValues of its microbatch",
        )
    out: Tensor = _Attention.apply(q, k, v, memory, layer, piece)
    return out


class Group(NamedTuple):
    """Rows that are computed together, because their documents begin at the same positions."""

    rows: range
    reach: Reach

    def of(self, tensor: Tensor) -> Tensor:
        return tensor[self.rows.start : self.rows.stop]

    def keys(self, tensor: Tensor, piece: Piece) -> Tensor:
        """The keys in reach."""
        return self.of(tensor)[:, :, piece.start - self.reach.past : piece.end]


def groups_of(piece: Piece) -> list[Group]:
    """All rows at once where they have the same documents, else each by itself."""
    rows = piece.rows
    documents = piece.documents
    step = rows if len(set(documents)) == 1 else 1
    return [
        Group(range(row, row + step), reach_of(piece.start, piece.end, documents[row]))
        for row in range(0, rows, step)
    ]


class _Attention(torch.autograd.Function):
    """The memory is no input: later slices write to it before the backward reads it again."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        memory: KeyValues | None,
        layer: int,
        piece: Piece,
    ) -> Tensor:
        back_end = back_end_for(q, piece)
        keys, values = (k, v) if memory is None else (memory.keys[layer], memory.values[layer])
        each = [
            back_end.forward(
                group.of(q), group.keys(keys, piece), group.keys(values, piece), group.reach
            )
            for group in groups_of(piece)
        ]
        out, lse = (_stacked(results) for results in zip(*each))
        ctx.back_end, ctx.memory, ctx.layer, ctx.piece = back_end, memory, layer, piece
        ctx.save_for_backward(q, out, lse, *((k, v) if memory is None else ()))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        g = g if g.stride(-1) == 1 else g.contiguous()
        each = [_backward_of(ctx, g, group) for group in groups_of(ctx.piece)]
        return (*(_stacked(gradients) for gradients in zip(*each)), None, None, None)


def _backward_of(ctx: Any, g: Tensor, group: Group) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of one group's own queries, keys and values."""
    q, out, lse, *own = ctx.saved_tensors
    memory, layer, piece, reach = ctx.memory, ctx.layer, ctx.piece, group.reach
    keys, values = own or (memory.keys[layer], memory.values[layer])
    seen = Seen(
        group.of(q),
        group.keys(keys, piece),
        group.keys(values, piece),
        group.of(out),
        group.of(lse),
    )
    relay = Relay(memory, layer, group.rows, piece, reach.past)
    dq, dk, dv = ctx.back_end.backward(group.of(g), seen, reach, relay.leave)
    if memory is not None:
        relay.take(dk, dv)
    return dq, dk, dv


def _stacked(rows: tuple[Tensor, ...]) -> Tensor:
    """Rows joined again, token by token in memory; those that were not parted stay as they are."""
    if len(rows) == 1:
        return rows[0]
    return torch.cat([each.transpose(1, 2) for each in rows]).transpose(1, 2)
