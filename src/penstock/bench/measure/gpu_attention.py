"""Attention on a GPU: our back end, whole and in slices, against PyTorch's own best kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from penstock.data.batch import Microbatch
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.attention.slice_attention import (
    SliceOfLayer,
    attention_backward,
    attention_forward,
)

REPEATS = 5


def attention_times(heads: int, kv_heads: int, size: int, lengths: Sequence[int]) -> dict[str, Any]:
    """Seconds of forward and backward: PyTorch, ours whole, ours in these slices."""
    tokens = sum(lengths)
    q, k, v = (_random(count, tokens, size) for count in (heads, kv_heads, kv_heads))
    g = _random(heads, tokens, size)
    theirs = min(_theirs(q, k, v, g, kernel) for kernel in _kernels())
    whole = _seconds(lambda: _ours(q, k, v, g, (tokens,)))
    sliced = _seconds(lambda: _ours(q, k, v, g, lengths))
    return {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": size,
        "lengths": list(lengths),
        "pytorch_seconds": theirs,
        "whole_seconds": whole,
        "sliced_seconds": sliced,
        "whole_over_pytorch": whole / theirs,
        "sliced_over_whole": sliced / whole,
    }


def _random(heads: int, tokens: int, size: int) -> Tensor:
    """Token by token in memory, as projections give it."""
    shape = (1, tokens, heads, size)
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda").transpose(1, 2)


def _kernels() -> list[Any]:
    from torch.nn.attention import SDPBackend

    return [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


def _theirs(q: Tensor, k: Tensor, v: Tensor, g: Tensor, kernel: Any) -> float:
    """PyTorch's attention with one of its kernels; infinite where that does not serve."""
    from torch.nn.attention import sdpa_kernel

    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))

    def once() -> None:
        with sdpa_kernel(kernel):
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        torch.autograd.grad(out, (q, k, v), g)

    try:
        return _seconds(once)
    except RuntimeError:
        return float("inf")


def _ours(q: Tensor, k: Tensor, v: Tensor, g: Tensor, lengths: Sequence[int]) -> None:
    """Forward of all slices, then backward from the last to the first."""
    memory = None
    if len(lengths) > 1:
        rows, heads, tokens, size = k.shape
        memory = KeyValues(1, rows, heads, tokens, size, dtype=k.dtype, device=k.device)
    seen = []
    for piece in _pieces(lengths):
        here = slice(piece.start, piece.end)
        own = q[:, :, here], k[:, :, here], v[:, :, here]
        if memory is not None:
            memory.write(0, piece, own[1], own[2])
        out, lse = attention_forward(*own, SliceOfLayer(piece, memory, 0))
        seen.append((piece, AttentionSaved(*own, out, lse)))
    if memory is not None:
        memory.open_gradients()
    for piece, kept in reversed(seen):
        attention_backward(g[:, :, piece.start : piece.end], kept, SliceOfLayer(piece, memory, 0))


def _pieces(lengths: Sequence[int]) -> tuple[Piece, ...]:
    words = torch.zeros(1, sum(lengths), dtype=torch.int64)
    return pieces_of(0, Microbatch(words, words, ((0,),)), lengths, 1.0)


def _seconds(once: Callable[[], None]) -> float:
    """The fastest of some repeats, after one that finds kernels and memory."""
    once()
    found = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        once()
        end.record()
        torch.cuda.synchronize()
        found.append(float(start.elapsed_time(end)) * 1e-3)
    return min(found)
