"""The private attention ops of PyTorch that are called here, all of them and nowhere else.

`torch.nn.functional.scaled_dot_product_attention` gives no log-sum-exp and lets no merged one into
its backward, so parts of an attention cannot be joined through it. A test compares the schemas with
the arguments passed below, for every PyTorch that is supported.

Tensors are [rows, heads, tokens, head_size]; key/value heads may be fewer than query heads. What a
kernel returns lies token by token in memory, [rows, tokens, heads, head_size].
"""

from functools import lru_cache

import torch
from torch import Tensor

from penstock.model.attention.reach import Reach

Output = tuple[Tensor, Tensor]
"""Attention output and log-sum-exp."""
Gradients = tuple[Tensor, Tensor, Tensor]
"""Of queries, keys and values."""

_aten = torch.ops.aten


def cpu_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Output:
    """Float64, float32 and 16-bit; causal is for equal lengths (aligned at the first key)."""
    out, lse = _aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0, causal)
    return out, lse


def cpu_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Output, causal: bool
) -> Gradients:
    out, lse = seen
    dq, dk, dv = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
        g, q, k, v, out, lse, 0.0, causal
    )
    return dq, dk, dv


def cudnn_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Output:
    """16-bit only: other types give NaN without an error. Causal is for equal lengths."""
    out, lse, *_ = _aten._scaled_dot_product_cudnn_attention.default(
        q, k, v, None, True, 0.0, causal
    )
    return out, lse


def cudnn_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Output, causal: bool
) -> Gradients:
    out, lse = seen[0], seen[1].view(*q.shape[:3], 1)  # which may come from another kernel
    seed = torch.empty((), dtype=torch.long, device=q.device)  # read only where there is dropout
    dq, dk, dv = _aten._scaled_dot_product_cudnn_attention_backward.default(
        g, q, k, v, out, lse, seed, seed, None, None, None, q.shape[2], k.shape[2], 0.0, causal
    )
    return dq, dk, dv


def flash_forward(q: Tensor, k: Tensor, v: Tensor, reach: Reach) -> Output:
    """16-bit only; one row, [tokens, heads, head_size], its documents one after the other."""
    queries, keys = cumulative_lengths(reach, q.device)
    out, lse, *_ = _aten._flash_attention_forward.default(
        q, k, v, queries, keys, *longest(reach), 0.0, True, False, **_window(reach)
    )
    return out, lse


def flash_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Output, reach: Reach
) -> Gradients:
    out, lse = seen[0], seen[1].contiguous()  # the kernel takes it as if it lay so, unasked
    queries, keys = cumulative_lengths(reach, q.device)
    seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
    unused = torch.empty(0, device=q.device)
    dq, dk, dv = _aten._flash_attention_backward.default(
        g, q, k, v, out, lse, queries, keys, *longest(reach), 0.0, True, seed, unused,
        **_window(reach),
    )  # fmt: skip
    return dq, dk, dv


def _window(reach: Reach) -> dict[str, int]:
    """Keys before its own that a query sees, where they are limited."""
    return {} if reach.window is None else {"window_size_left": reach.window - 1}


@lru_cache(maxsize=256)
def cumulative_lengths(reach: Reach, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the documents of a slice begin among its queries and among the keys in reach."""
    queries = [sum(reach.lengths[:count]) for count in range(len(reach.lengths) + 1)]
    keys = [0, *(reach.past + end for end in queries[1:])]
    return (
        torch.tensor(queries, dtype=torch.int32, device=device),
        torch.tensor(keys, dtype=torch.int32, device=device),
    )


def longest(reach: Reach) -> tuple[int, int]:
    """Most queries and most keys of a document."""
    first, *others = reach.lengths
    return max(reach.lengths), max(reach.past + first, *others, 0)
