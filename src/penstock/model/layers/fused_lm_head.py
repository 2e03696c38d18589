"""The output layer and the loss with fused kernels: some tokens at a time, all words at once.

A kernel that reads logits as the product gives them, in 16 bits, leaves room for many tokens with
the whole vocabulary: their softmax is known at once, and their gradient is written over them. The
more tokens, the less often the head's gradient, which is as large as the head in 32 bits, goes
through memory.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.arch.layers.lm_head import FUSED_LOGITS_BYTES
from penstock.data.batch import IGNORE
from penstock.model.layers.linear import add_product


def fused_head_loss(head: Tensor, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The summed loss in 64 bits, and each token's log-sum-exp."""
    from penstock.model.kernels.cross_entropy import log_sum_exp  # deferred: needs Triton

    lse, losses = (x.new_empty(labels.shape, dtype=torch.float32) for _ in range(2))
    for tokens in _chunks(head, labels):
        logits = x[tokens] @ head.t()
        log_sum_exp(logits, labels[tokens], lse[tokens], losses[tokens], IGNORE)
    return losses.sum(dtype=torch.float64), lse


def fused_head_loss_backward(
    head: Tensor, gradient: Tensor, x: Tensor, labels: Tensor, lse: Tensor, scale: float
) -> Tensor:
    """The gradient of scale x loss with respect to x; that of the head is added to `gradient`."""
    from penstock.model.kernels.cross_entropy import to_gradient  # deferred: needs Triton

    dx = torch.empty_like(x)
    for tokens in _chunks(head, labels):
        d = x[tokens] @ head.t()
        to_gradient(d, labels[tokens], lse[tokens], scale, IGNORE)
        torch.mm(d, head, out=dx[tokens])
        add_product(gradient, x[tokens], d)
    return dx


def _chunks(head: Tensor, labels: Tensor) -> Iterator[slice]:
    """Tokens whose logits fit; chunks are equal but for the last, as kernels are chosen by size."""
    most = max(1, FUSED_LOGITS_BYTES // (len(head) * head.element_size()))
    count = -(-len(labels) // most)
    size = -(-len(labels) // count) if count else 1
    for start in range(0, len(labels), size):
        yield slice(start, start + size)
