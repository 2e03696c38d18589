"""Attention of one slice: causal on itself, full on the slices before it.

Joining the keys of all slices so far would copy and keep them once per slice. Here a slice writes
its keys and values into the microbatch's memory and reads the whole prefix from there; in the
backward it leaves the gradients of earlier keys in the memory, from the last slice to the first,
and finds in it what later slices left for its own.

Tensors are [rows, heads, tokens, head_size]. Fastest is a transposed view of memory that lies token
by token, [rows, tokens, heads, head_size], as projections give it; outputs and gradients lie so
too, and `.transpose(1, 2).flatten(2)` of them costs nothing.
"""

from typing import Any

import torch
from torch import Tensor

from penstock.model.attention.back_end import Seen
from penstock.model.attention.explicit import Place, attention_backward, attention_forward
from penstock.model.attention.memory import KeyValues
from penstock.model.stages.piece import Piece


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
    place = Place(piece, memory, layer)
    out: Tensor = _Attention.apply(q, k, v, place)  # type: ignore[no-untyped-call]
    return out


class _Attention(torch.autograd.Function):
    """The memory is no input: later slices write to it before the backward reads it again."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        out, lse = attention_forward(q, k, v, place)
        ctx.place = place
        # keys and values that are in the memory are not kept a second time
        ctx.save_for_backward(q, out, lse, *((k, v) if place.memory is None else ()))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, out, lse, *own = ctx.saved_tensors
        k, v = own or (q, q)  # not looked at where there is a memory
        return (*attention_backward(g, Seen(q, k, v, out, lse), ctx.place), None)
