"""The softmax over a vocabulary and its gradient, on logits as the product gives them.

One program has the logits of one token: it goes through them for their log-sum-exp and a second
time, while they are still in the cache, to write their gradient over them. Statistics are in 32
bits, whatever the logits are in.
"""

import triton
from torch import Tensor
from triton import language as tl

LOGITS = 8192
"""Logits that a program takes at a time."""
WARPS = 32
"""Many threads for few tokens: the logits that all programs have read must fit into the cache."""

LOWEST = -1e30
"""Below every logit, and finite: the difference of two infinities is no number."""


@triton.jit
def _log_sum_exp(start, words, block: tl.constexpr, lowest: tl.constexpr):
    largest = tl.full([block], lowest, dtype=tl.float32)
    total = tl.zeros([block], dtype=tl.float32)
    for begin in range(0, words, block):
        at = begin + tl.arange(0, block)
        values = tl.load(start + at, mask=at < words, other=lowest).to(tl.float32)
        new = tl.maximum(largest, values)
        total = total * tl.exp(largest - new) + tl.exp(values - new)
        largest = new
    top = tl.max(largest, 0)
    return top + tl.log(tl.sum(total * tl.exp(largest - top), 0))


@triton.jit
def _loss_alone(logits, labels, losses, words, ignored,
                block: tl.constexpr, lowest: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * words
    found = _log_sum_exp(start, words, block, lowest)
    label = tl.load(labels + row)
    counts = label != ignored
    picked = tl.load(start + tl.where(counts, label, 0)).to(tl.float32)
    tl.store(losses + row, tl.where(counts, found - picked, 0.0))


@triton.jit
def _loss_gradient(logits, labels, losses, scale, words, ignored,
                   block: tl.constexpr, lowest: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * words
    found = _log_sum_exp(start, words, block, lowest)
    label = tl.load(labels + row)
    counts = label != ignored
    picked = tl.load(start + tl.where(counts, label, 0)).to(tl.float32)
    tl.store(losses + row, tl.where(counts, found - picked, 0.0))
    tl.debug_barrier()  # the label's logit is read before anything is written over it
    weight = tl.where(counts, scale, 0.0)
    for begin in range(0, words, block):
        at = begin + tl.arange(0, block)
        inside = at < words
        values = tl.load(start + at, mask=inside, other=lowest).to(tl.float32)
        p = tl.exp(values - found) - tl.where(at == label, 1.0, 0.0)
        tl.store(start + at, (p * weight).to(logits.dtype.element_ty), mask=inside)


def write_losses(logits: Tensor, labels: Tensor, losses: Tensor, ignored: int) -> None:
    """Write each token's loss, 0 where its label is `ignored`."""
    words = logits.shape[1]
    _loss_alone[(len(logits),)](
        logits, labels, losses, words, ignored, block=LOGITS, lowest=LOWEST, num_warps=WARPS
    )


def to_gradient(logits: Tensor, labels: Tensor, losses: Tensor, scale: float, ignored: int) -> None:
    """Write each token's loss, and the gradient of scale x loss over the logits."""
    words = logits.shape[1]
    _loss_gradient[(len(logits),)](
        logits, labels, losses, scale, words, ignored, block=LOGITS, lowest=LOWEST, num_warps=WARPS
    )
