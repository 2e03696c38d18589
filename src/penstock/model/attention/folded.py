"""Grouped heads as more queries of fewer heads, for the kernel of the CPU.

Query heads of a group see the same keys, so in a rectangle they may stand one behind the other as
the queries of one head. The kernel works on blocks of 256 queries where it is given 768 or more,
and on smaller ones else: short slices gain 8 % of the time, for copies of a few tensors of the
slice's size. In a triangle queries have places, so there it is not done.
"""

from torch import Tensor

from penstock.arch.layers.attention import FOLDED_BELOW
from penstock.model.attention.aten import Gradients, Output, cpu_backward, cpu_forward


def folded_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Output:
    """As `cpu_forward`."""
    if causal or not _gains(q, k):
        return cpu_forward(q, k, v, causal)
    rows, heads, length, _ = q.shape
    out, lse = cpu_forward(_fold(q, k), k, v, False)
    return _unfold(out, q), lse.reshape(rows, heads, length)


def folded_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Output, causal: bool
) -> Gradients:
    """As `cpu_backward`."""
    if causal or not _gains(q, k):
        return cpu_backward(g, q, k, v, seen, causal)
    out, lse = seen
    merged = _fold(out, k), lse.reshape(k.shape[0], k.shape[1], -1)
    dq, dk, dv = cpu_backward(_fold(g, k), _fold(q, k), k, v, merged, False)
    return _unfold(dq, q), dk, dv


def _gains(q: Tensor, k: Tensor) -> bool:
    return q.shape[1] > k.shape[1] and q.shape[2] < FOLDED_BELOW


def _fold(tensor: Tensor, k: Tensor) -> Tensor:
    """[rows, heads, n, d] -> [rows, kv_heads, group x n, d]"""
    return tensor.reshape(k.shape[0], k.shape[1], -1, k.shape[3])


def _unfold(folded: Tensor, q: Tensor) -> Tensor:
    """Back, laid token by token."""
    rows, heads, length, size = q.shape
    shared = folded.shape[1]
    by_head = folded.view(rows, shared, heads // shared, length, size)
    by_token = by_head.permute(0, 3, 1, 2, 4).contiguous()
    return by_token.view(rows, length, heads, size).transpose(1, 2)
