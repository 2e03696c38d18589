"""Attention in plain matrix products, for what no fused kernel serves: float32 on a GPU, and scores
with a soft cap, which become cap x tanh(score / cap).

The scores of some queries against all keys are in memory at once; as many queries are taken at a
time as fit `SCORES`.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.model.attention.aten import Gradients, Output

SCORES = 1 << 26
"""Elements of a block of scores."""


def plain_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, cap: float | None = None
) -> Output:
    """As the fused kernels: output laid token by token, and the log-sum-exp."""
    rows, heads, length, size = q.shape
    out = q.new_empty(rows, length, heads, size).transpose(1, 2)
    lse = q.new_empty(rows, heads, length, dtype=_accurate(q.dtype))
    for block in _blocks(q, k):
        scores, _ = _scores(q, k, block, causal, cap)
        lse[:, :, block] = torch.logsumexp(scores, -1)
        weights = torch.exp(scores - lse[:, :, block, None]).to(q.dtype)
        out[:, :, block] = _times(weights, v)
    return out, lse


def plain_backward(
    g: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Output,
    causal: bool,
    cap: float | None = None,
) -> Gradients:
    """Gradients from the output and log-sum-exp of all keys, of which k and v may be a part."""
    out, lse = seen
    dq = torch.empty_like(q.transpose(1, 2)).transpose(1, 2)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    group = q.shape[1] // k.shape[1]
    for block in _blocks(q, k):
        scores, slope = _scores(q, k, block, causal, cap)
        weights = torch.exp(scores - lse[:, :, block, None]).to(q.dtype)
        del scores
        dv += _sum_groups(weights.mT @ g[:, :, block], group)
        mean = (g[:, :, block] * out[:, :, block]).sum(-1, keepdim=True)
        ds = weights * (_times(g[:, :, block], v.mT) - mean) / math.sqrt(q.shape[-1])
        if slope is not None:
            ds = (ds * slope).to(q.dtype)
        dq[:, :, block] = _times(ds, k)
        dk += _sum_groups(ds.mT @ q[:, :, block], group)
    return dq, dk, dv


def _accurate(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def _blocks(q: Tensor, k: Tensor) -> Iterator[slice]:
    rows, heads, length, _ = q.shape
    step = max(SCORES // (rows * heads * k.shape[2]), 1)
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _scores(
    q: Tensor, k: Tensor, block: slice, causal: bool, cap: float | None
) -> tuple[Tensor, Tensor | None]:
    """Scaled products of some queries with all keys, -inf where a key lies after its query; and the
    slope of their bound."""
    scores = _times(q[:, :, block], k.mT).to(_accurate(q.dtype)) / math.sqrt(q.shape[-1])
    slope = None
    if cap is not None:
        scores.div_(cap).tanh_()
        slope = (scores * scores).neg_().add_(1)
        scores.mul_(cap)
    if causal:
        queries = torch.arange(block.start, block.stop, device=q.device)
        later = torch.arange(k.shape[2], device=q.device) > queries[:, None]
        scores.masked_fill_(later, -math.inf)
    return scores, slope


def _times(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product where a group of heads on the left shares one on the right."""
    rows, heads, length, size = left.shape
    shared = right.shape[1]
    folded = left.reshape(rows, shared, heads // shared * length, size) @ right
    return folded.view(rows, heads, length, right.shape[-1])


def _sum_groups(each: Tensor, group: int) -> Tensor:
    """The sum over the heads of each group."""
    rows, heads, *rest = each.shape
    return each.view(rows, heads // group, group, *rest).sum(2) if group > 1 else each
