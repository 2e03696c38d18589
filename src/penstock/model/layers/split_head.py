"""The head and its loss where ranks share the vocabulary: no rank has the logits of all words.

A softmax over words that lie on several ranks needs two small exchanges for each token: the largest
logit, and with it the sum of exponentials and the logit of the label, which one rank has. Then
every rank turns its own logits into their gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.data.batch import IGNORE
from penstock.model.layers.linear import linear, linear_backward_at_once
from penstock.model.layers.lm_head import token_chunks, wide_type
from penstock.model.layers.logit_cap import cap_logits, through_cap
from penstock.model.layers.views import Matrix
from penstock.model.parallel.group import RankGroup, Work


class OwnWords(NamedTuple):
    """A rank's words of the head [own words, hidden], the first of which has number `first`."""

    matrix: Matrix
    first: int
    group: RankGroup
    cap: float | None = None
    """Bound of the logits."""

    @property
    def weight(self) -> Tensor:
        return self.matrix.weight


class Softmax(NamedTuple):
    """What a rank has of the softmax of some tokens."""

    exponentials: Tensor
    """Of own words [tokens, own words], divided by nothing yet."""
    total: Tensor
    """Sums over all words [tokens]."""
    losses: Tensor
    slope: Tensor | None
    """Of the bound of own logits."""


def split_head_loss(head: OwnWords, x: Tensor, labels: Tensor) -> Work[Tensor]:
    """The summed loss of x [tokens, hidden], in 64 bits; the same on all ranks."""
    losses = x.new_empty(labels.shape, dtype=wide_type(x))
    for tokens in token_chunks(head.weight, labels):
        softmax = yield from _softmax(head, x[tokens], labels[tokens])
        losses[tokens] = softmax.losses
        del softmax  # before the next logits are there
    return losses.sum(dtype=torch.float64)


def split_head_loss_backward(
    head: OwnWords, gradient: Matrix, x: Tensor, labels: Tensor, scale: float
) -> Work[Tensor]:
    """The loss; x becomes this rank's part of the gradient of scale x loss with respect to it, and
    that with respect to own words is added to `gradient`."""
    losses = x.new_empty(labels.shape, dtype=wide_type(x))
    for tokens in token_chunks(head.weight, labels):
        softmax = yield from _softmax(head, x[tokens], labels[tokens])
        losses[tokens] = softmax.losses
        d = _to_gradient(head, softmax, labels[tokens], scale).to(x.dtype)
        linear_backward_at_once(head.matrix, gradient, x[tokens], d)
        del softmax, d  # before the next logits are there
    return losses.sum(dtype=torch.float64)


def _softmax(head: OwnWords, x: Tensor, labels: Tensor) -> Work[Softmax]:
    logits, slope = cap_logits(linear(head.matrix, x).to(wide_type(x)), head.cap)
    largest = logits.amax(-1)
    yield head.group.take_largest(largest)
    logits.sub_(largest.unsqueeze(-1))
    words, own = own_labels(head.first, len(head.weight), labels)
    picked = logits.gather(-1, words.unsqueeze(-1)).squeeze(-1).mul_(own)
    exponentials = logits.exp_()
    both = torch.stack((exponentials.sum(-1), picked))
    yield head.group.add_up(both)
    total, picked = both
    losses = total.log().sub_(picked).mul_(labels != IGNORE)
    return Softmax(exponentials, total, losses, slope)


def _to_gradient(head: OwnWords, softmax: Softmax, labels: Tensor, scale: float) -> Tensor:
    """The gradient of own logits, written over the exponentials."""
    words, own = own_labels(head.first, len(head.weight), labels)
    counts = (labels != IGNORE).to(softmax.total.dtype)
    d = softmax.exponentials.div_(softmax.total.unsqueeze(-1))
    d.scatter_add_(-1, words.unsqueeze(-1), -own.to(d.dtype).unsqueeze(-1))
    return through_cap(d.mul_((counts * scale).unsqueeze(-1)), softmax.slope)


def own_labels(first: int, count: int, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Labels as numbers of own words, which are `count` from word `first` on, and which of them
    are: words of others stand as word 0."""
    words = labels - first
    own = (words >= 0) & (words < count) & (labels != IGNORE)
    return torch.where(own, words, 0), own
