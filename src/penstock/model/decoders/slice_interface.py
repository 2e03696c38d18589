"""Attention of slices in decoders of `transformers`, through the registry that they ask.

A decoder whose attention asks the registry hands over queries, keys and values, and does not care
what happens to them. So keys and values go to the memory of their microbatch, the slice attends to
all that is there, and the backward leaves gradients for earlier slices: the same attention that the
models of this package have. It is taken for a decoder only if its layers give the same numbers in
slices as whole; one that also mixes tokens elsewhere does not.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from penstock.errors import RunError, ShapeError
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece
from penstock.model.attention.slice_attention import (
    SliceOfLayer,
    attention_backward,
    attention_forward,
)

NAME = "penstock"
"""Under which the registry of transformers knows this attention."""
MATTERS = ("softcap", "s_aux", "position_bias", "head_mask", "logits_soft_cap")
"""What a caller may ask for beside, and what this attention cannot do."""
BY_LENGTH = ("dynamic", "longrope")
"""Rotary positions whose frequencies follow from the longest position of a call."""


class SliceMemories:
    """Keys and values of one microbatch on one stage: a memory for each of its attentions, made
    when the first slice comes by."""

    def __init__(self) -> None:
        self.of: dict[int, KeyValues] = {}

    def take(self, module: Module, piece: Piece, key: Tensor) -> KeyValues:
        rows, heads, _, size = key.shape
        if id(module) not in self.of:
            sizes = (1, rows, heads, piece.length, size)
            self.of[id(module)] = KeyValues(*sizes, dtype=key.dtype, device=key.device)
        return self.of[id(module)]

    def open_gradients(self) -> None:
        for memory in self.of.values():
            memory.open_gradients()

    def close_gradients(self) -> None:
        for memory in self.of.values():
            memory.close_gradients()


Place = tuple[Piece, SliceMemories | None]
_PLACE: ContextVar[Place | None] = ContextVar("slice", default=None)
"""The slice at work, while a stage runs; nothing where a whole sequence is meant."""


@contextmanager
def slice_at_work(piece: Piece, memories: SliceMemories | None) -> Iterator[None]:
    """In the block, attention is that of a slice."""
    token = _PLACE.set((piece, memories))
    try:
        yield
    finally:
        _PLACE.reset(token)


def attend_in_slices(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    **beside: Any,
) -> tuple[Tensor, None]:
    """Attention as the registry has it: heads [rows, heads, tokens, size] in, [rows, tokens, heads,
    size] out."""
    piece, memories = _PLACE.get() or (_whole(query), None)
    _refuse(module, piece, attention_mask, beside)
    size = query.shape[-1]
    if value.shape[-1] != size:
        raise _cannot(module, f"its values have {value.shape[-1]} features and its keys {size}")
    if scaling is not None and scaling != size**-0.5:
        query = query * (scaling * sqrt(size))  # kernels divide by the root of the head size
    memory = memories.take(module, piece, key) if memories is not None else None
    out = _SliceAttention.apply(query, key, value, SliceOfLayer(piece, memory, 0))  # type: ignore[no-untyped-call]
    return out.transpose(1, 2), None


class _SliceAttention(torch.autograd.Function):
    """The attention of a slice for autograd."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, at: SliceOfLayer) -> Tensor:
        if at.memory is not None:
            at.memory.write(at.layer, at.piece, k, v)
        out, lse = attention_forward(q, k, v, at)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.at = at
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return *attention_backward(g, AttentionSaved(*ctx.saved_tensors), ctx.at), None


def take_registry(model: Any) -> None:
    """Let a decoder attend through this file; one that does not ask the registry is refused."""
    from transformers import AttentionInterface

    if not model._can_set_attn_implementation():
        raise _cannot(model, "its attention does not ask the registry of transformers")
    kinds = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise _cannot(model, f"it has layers of {', '.join(sorted(kinds))}")
    AttentionInterface.register(NAME, attend_in_slices)
    model.set_attn_implementation(NAME)


def give_back_registry(module: Module) -> None:
    """Let a decoder that attends through this file attend through torch again."""
    for inner in module.modules():
        config: Any = getattr(inner, "config", None)
        if getattr(config, "_attn_implementation", "") == NAME:
            config._attn_implementation = "sdpa"


def _whole(query: Tensor) -> Piece:
    """The piece of sequences that are not cut."""
    rows, _, length, _ = query.shape
    nothing = query.new_empty((rows, length))
    return Piece(0, 0, 1, 0, length, length, nothing, nothing, ((0,),) * rows, 1.0)


def _refuse(module: Module, piece: Piece, mask: Tensor | None, beside: Mapping[str, Any]) -> None:
    """Refuse what would change the numbers and is not done here."""
    asked = [name for name in MATTERS if beside.get(name) is not None]
    if mask is not None:
        asked.append("a mask")
    if beside.get("dropout"):
        asked.append("dropout of attention")
    config = getattr(module, "config", None)
    # not every decoder tells its attention of a window that its masks have
    window = beside.get("sliding_window") or getattr(config, "sliding_window", None)
    if window is not None and window < piece.length:
        asked.append(f"a window of {window} tokens")
    asked += [
        f"{kind} rotary positions, of which each depends on the longest beyond {most} tokens"
        for kind, most in _rotary_limits(config)
        if most < piece.length
    ]
    if asked:
        raise _cannot(module, f"it asks for {', '.join(asked)}")


def _rotary_limits(config: Any) -> Iterator[tuple[str, int]]:
    """Rotary positions that change with the length of a sequence, and up to which they do not;
    transformers 4 has another key for them, and some decoders have several."""
    stated = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [each for each in stated.values() if isinstance(each, Mapping)]
    for each in nested or [stated]:
        kind = str(each.get("rope_type", each.get("type")))
        if kind in BY_LENGTH:
            original = each.get("original_max_position_embeddings")
            longest = config.max_position_embeddings
            yield kind, (original or longest) if kind == "longrope" else longest


def _cannot(module: Module, why: str) -> ShapeError:
    return ShapeError(
        f"{type(module).__name__} runs whole sequences only: {why}",
        hint="take a schedule without slices (see `penstock list`)",
    )


def documents_of(position_ids: Tensor | None, rows: int) -> tuple[tuple[int, ...], ...]:
    """Where the documents of each row start: positions begin at 0 with each of them."""
    if position_ids is None:
        return ((0,),) * rows
    found = [
        tuple((row == 0).nonzero().flatten().tolist()) for row in position_ids.expand(rows, -1)
    ]
    if wrong := [number for number, starts in enumerate(found) if not starts or starts[0]]:
        raise RunError(
            f"position_ids of row {wrong[0]} do not begin with 0",
            hint="count the positions of each document from 0, the first one from the row's start",
        )
    return tuple(found)
