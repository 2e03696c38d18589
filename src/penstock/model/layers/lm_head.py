"""The output layer and the loss, without ever holding all logits, and with each computed once.

At a vocabulary of 128K the logits of an 8K slice take 4 GiB. What a label weighs in the loss is
known before the batch begins, so loss and gradient need not be parted: some tokens at a time, all
words at once, logits are computed, summed up to a loss, turned into their own gradient where they
lie, and multiplied into the gradients of the input and of the head. Putting the head's weight
gradient off would keep the gradient of all logits alive.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.arch.layers.lm_head import tokens_at_a_time
from penstock.data.batch import IGNORE
from penstock.model.kernels.choice import fusible
from penstock.model.layers.linear import linear, linear_backward_at_once
from penstock.model.layers.logit_cap import cap_alone, cap_logits, through_cap
from penstock.model.layers.views import Matrix


def head_loss(head: Matrix, x: Tensor, labels: Tensor, cap: float | None = None) -> Tensor:
    """The loss of head [vocabulary, hidden], x [tokens, hidden] and labels [tokens]: the sum over
    those that count, in 64 bits. Logits may be bounded by a cap."""
    losses = x.new_empty(labels.shape, dtype=wide_type(x))
    for tokens in token_chunks(head.weight, labels):
        logits = cap_alone(linear(head, x[tokens]), cap)
        _write_losses(logits, labels[tokens], losses[tokens])
        del logits  # before the next are there
    return losses.sum(dtype=torch.float64)


def head_loss_backward(
    head: Matrix,
    gradient: Matrix,
    x: Tensor,
    labels: Tensor,
    scale: float,
    cap: float | None = None,
) -> Tensor:
    """The loss; x becomes the gradient of scale x loss with respect to it, and that with respect to
    the head is added to `gradient`."""
    losses = x.new_empty(labels.shape, dtype=wide_type(x))
    for tokens in token_chunks(head.weight, labels):
        logits, slope = cap_logits(linear(head, x[tokens]), cap)
        d = through_cap(logits_to_gradient(logits, labels[tokens], losses[tokens], scale), slope)
        del logits, slope
        linear_backward_at_once(head, gradient, x[tokens], d)
        del d  # before the next logits are there
    return losses.sum(dtype=torch.float64)


def _write_losses(logits: Tensor, labels: Tensor, losses: Tensor) -> None:
    """The loss of each token, 0 where its label does not count."""
    if fusible(logits):
        from penstock.model.kernels.cross_entropy import write_losses  # deferred: needs Triton

        write_losses(logits, labels, losses, IGNORE)
    else:
        plain_losses(logits.to(losses.dtype), labels, losses)


def logits_to_gradient(logits: Tensor, labels: Tensor, losses: Tensor, scale: float) -> Tensor:
    """The gradient of scale x loss with respect to the logits, which are gone; and the losses."""
    if fusible(logits):
        from penstock.model.kernels.cross_entropy import to_gradient  # deferred: needs Triton

        to_gradient(logits, labels, losses, scale, IGNORE)
        return logits
    return plain_gradient(logits.to(losses.dtype), labels, losses, scale).to(logits.dtype)


def plain_losses(logits: Tensor, labels: Tensor, losses: Tensor) -> Tensor:
    """By PyTorch's own kernels; returns the log-sum-exp of each token."""
    lse = logits.logsumexp(-1)
    counts = labels != IGNORE
    picked = logits.gather(-1, torch.where(counts, labels, 0).unsqueeze(-1)).squeeze(-1)
    torch.mul(lse - picked, counts, out=losses)
    return lse


def plain_gradient(logits: Tensor, labels: Tensor, losses: Tensor, scale: float) -> Tensor:
    """By PyTorch's own kernels, written over the logits."""
    lse = plain_losses(logits, labels, losses)
    counts = (labels != IGNORE).to(logits.dtype).unsqueeze(-1)
    p = logits.sub_(lse.unsqueeze(-1)).exp_()
    return p.scatter_add_(-1, labels.clamp(min=0).unsqueeze(-1), -counts).mul_(counts * scale)


def wide_type(x: Tensor) -> torch.dtype:
    """Softmax statistics are held in 32 bits at least."""
    return torch.promote_types(x.dtype, torch.float32)


def token_chunks(head: Tensor, labels: Tensor) -> Iterator[slice]:
    """Tokens whose logits fit; chunks are equal but for the last, as kernels are chosen by size."""
    most = tokens_at_a_time(len(head), head.element_size(), fused=fusible(head))
    count = -(-len(labels) // most)
    size = -(-len(labels) // count) if count else 1
    for start in range(0, len(labels), size):
        yield slice(start, start + size)
