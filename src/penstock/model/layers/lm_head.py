"""The output layer and the loss, without ever holding all logits.

At a vocabulary of 128K the logits of an 8K slice take 4 GiB. The forward goes through the
vocabulary chunk by chunk and keeps one log-sum-exp per token; the backward computes each chunk's
logits again, turns them into their gradient, and adds the head's weight gradient there and then:
putting it off would keep the gradient of all logits alive.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.layers.lm_head import LOGITS_AT_A_TIME
from penstock.data.batch import IGNORE
from penstock.model.kernels.choice import fusible
from penstock.model.layers.fused_lm_head import fused_head_loss, fused_head_loss_backward
from penstock.model.layers.linear import add_product

ALIGNED = 128
"""Words of a chunk are a multiple of it: products of odd widths take kernels of half the speed."""


class HeadLoss(NamedTuple):
    """What the forward of the head keeps, beside its input."""

    loss: Tensor
    """Sum over the labels that count, in 64 bits."""
    lse: Tensor
    """Log-sum-exp of each token's logits."""


def head_loss(head: Tensor, x: Tensor, labels: Tensor) -> HeadLoss:
    """head [vocabulary, hidden], x [tokens, hidden], labels [tokens]"""
    if fusible(x):
        return HeadLoss(*fused_head_loss(head, x, labels))
    return plain_head_loss(head, x, labels)


def head_loss_backward(
    head: Tensor, gradient: Tensor, x: Tensor, labels: Tensor, lse: Tensor, scale: float
) -> Tensor:
    """The gradient of scale x loss with respect to x; that of the head is added to `gradient`."""
    if fusible(x):
        return fused_head_loss_backward(head, gradient, x, labels, lse, scale)
    return plain_head_loss_backward(head, gradient, x, labels, lse, scale)


def plain_head_loss(head: Tensor, x: Tensor, labels: Tensor) -> HeadLoss:
    """By PyTorch's own kernels."""
    lse = torch.full(labels.shape, -torch.inf, dtype=_wide(x), device=x.device)
    picked = torch.zeros_like(lse)
    for chunk, place, inside in _chunks(head, labels):
        logits = _logits(x, head[chunk])
        torch.logaddexp(lse, logits.logsumexp(-1), out=lse)
        picked += logits.gather(-1, place).squeeze(-1) * inside
    losses = torch.where(labels == IGNORE, 0.0, lse - picked)
    return HeadLoss(losses.sum(dtype=torch.float64), lse)


def plain_head_loss_backward(
    head: Tensor, gradient: Tensor, x: Tensor, labels: Tensor, lse: Tensor, scale: float
) -> Tensor:
    """By PyTorch's own kernels."""
    dx = torch.zeros(x.shape, dtype=_wide(x), device=x.device)
    weight = (labels != IGNORE).to(dx.dtype).mul_(scale).unsqueeze(-1)
    for chunk, place, inside in _chunks(head, labels):
        rows = head[chunk]
        p = _logits(x, rows).sub_(lse.unsqueeze(-1)).exp_()
        p.scatter_add_(-1, place, -inside.to(p.dtype).unsqueeze(-1))
        d = p.mul_(weight).to(x.dtype)
        dx += d @ rows
        add_product(gradient[chunk], x, d)
    return dx.to(x.dtype)


def _wide(x: Tensor) -> torch.dtype:
    """Softmax statistics are held in 32 bits at least."""
    return torch.promote_types(x.dtype, torch.float32)


def _logits(x: Tensor, weight: Tensor) -> Tensor:
    return (x @ weight.t()).to(_wide(x))


def _chunks(head: Tensor, labels: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Pieces of the vocabulary whose logits fit; for each, where a token's label would be in it,
    and whether it is. (A search for the labels inside would make the host wait for the GPU.)"""
    size = max(1, LOGITS_AT_A_TIME // len(labels))
    if size > ALIGNED:
        size -= size % ALIGNED
    for start in range(0, len(head), size):
        words = min(size, len(head) - start)
        place = labels - start
        inside = (place >= 0) & (place < words)
        yield slice(start, start + words), place.clamp_(0, words - 1).unsqueeze(-1), inside
