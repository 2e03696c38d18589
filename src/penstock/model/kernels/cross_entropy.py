"""The softmax over a vocabulary and its gradient, on logits as the product gives them.

One kernel goes through the logits of each token for their log-sum-exp, one writes their gradient
over them. Statistics are in 32 bits, whatever the logits are in.
"""

import triton
from torch import Tensor
from triton import language as tl

LOGITS = 4096
"""Logits that a program takes at a time."""

LOWEST = -1e30
"""Below every logit, and finite: the difference of two infinities is no number."""


@triton.jit
def _loss_lse(logits, labels, lse, losses, words, ignored,
              block: tl.constexpr, lowest: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * words
    largest = tl.full([block], lowest, dtype=tl.float32)
    total = tl.zeros([block], dtype=tl.float32)
    for begin in range(0, words, block):
        at = begin + tl.arange(0, block)
        values = tl.load(start + at, mask=at < words, other=lowest).to(tl.float32)
        new = tl.maximum(largest, values)
        total = total * tl.exp(largest - new) + tl.exp(values - new)
        largest = new
    top = tl.max(largest, 0)
    found = top + tl.log(tl.sum(total * tl.exp(largest - top), 0))
    tl.store(lse + row, found)
    label = tl.load(labels + row)
    counts = label != ignored
    picked = tl.load(start + tl.where(counts, label, 0)).to(tl.float32)
    tl.store(losses + row, tl.where(counts, found - picked, 0.0))


@triton.jit
def _loss_gradient(logits, labels, lse, scale, words, ignored,
                   block: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    weight = tl.where(label != ignored, scale, 0.0)
    sum_of_row = tl.load(lse + row)
    at = tl.program_id(1) * block + tl.arange(0, block)
    inside = at < words
    values = tl.load(logits + row * words + at, mask=inside).to(tl.float32)
    p = tl.exp(values - sum_of_row) - tl.where(at == label, 1.0, 0.0)
    tl.store(logits + row * words + at, (p * weight).to(logits.dtype.element_ty), mask=inside)


def log_sum_exp(logits: Tensor, labels: Tensor, lse: Tensor, losses: Tensor, ignored: int) -> None:
    """Write each token's log-sum-exp and its loss, 0 where its label is `ignored`."""
    words = logits.shape[1]
    _loss_lse[(len(logits),)](
        logits, labels, lse, losses, words, ignored, block=LOGITS, lowest=LOWEST, num_warps=8
    )


def to_gradient(logits: Tensor, labels: Tensor, lse: Tensor, scale: float, ignored: int) -> None:
    """Write the gradient of scale x loss over the logits."""
    words = logits.shape[1]
    grid = (len(logits), triton.cdiv(words, LOGITS))
    _loss_gradient[grid](logits, labels, lse, scale, words, ignored, block=LOGITS, num_warps=8)
