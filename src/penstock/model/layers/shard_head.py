"""The head and its loss where every device has a shard of the vocabulary, in two passes.

The first pass computes the logits of own words, and for each token the largest of them, the sum of
their exponentials beside it, and the logit of the label, where the label is an own word. What these
come to over all shards is merged elsewhere, while the device works on something else. The second
pass turns the exponentials into the gradient of own logits.

The gradient of what came in is a sum over shards. Either every shard has its part after the second
pass, or already after the first: exponentials times the head, which the merged statistics scale row
by row. Source: arXiv:2411.05288, algorithms 1 and 2.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.data.batch import IGNORE
from penstock.model.layers.linear import add_product
from penstock.model.layers.lm_head import token_chunks, wide_type
from penstock.model.layers.logit_cap import cap_logits, through_cap
from penstock.model.layers.split_head import own_labels


class ShardWords(NamedTuple):
    """The words of a shard: rows of the head [own words, hidden], from word `first` on."""

    weight: Tensor
    first: int
    cap: float | None = None
    """Bound of the logits."""


class Labels(NamedTuple):
    """The labels of some tokens, and what one of them weighs in the loss."""

    words: Tensor
    scale: float

    def weights(self, dtype: torch.dtype) -> Tensor:
        """What each token weighs: nothing, where its label does not count."""
        return (self.words != IGNORE).to(dtype).mul_(self.scale)


@dataclass(eq=False)
class ShardStatistics:
    """What is known of the softmax of some tokens: of own words, until all shards are merged."""

    largest: Tensor
    """Logit of the largest word [tokens]."""
    total: Tensor
    """Sum of exponentials beside the largest [tokens]."""
    picked: Tensor
    """Logit of the label beside the largest; before merging the logit itself, 0 where another shard
    has the label."""

    def stacked(self) -> Tensor:
        """All three as one tensor, for other shards."""
        return torch.stack((self.largest, self.total, self.picked))

    def merge(self, shards: Tensor) -> None:
        """Become what all shards [shards, 3, tokens] together have."""
        largest, total, picked = shards.unbind(1)
        self.largest = largest.amax(0)
        self.total = total.mul_(largest.sub(self.largest).exp_()).sum(0)
        self.picked = picked.sum(0).sub_(self.largest)

    def shares(self, largest: Tensor) -> Tensor:
        """What exponentials beside another largest logit are multiplied by to become probabilities
        [tokens], once all shards are merged."""
        return largest.sub(self.largest).exp_().div_(self.total)

    def losses(self, labels: Tensor) -> Tensor:
        """The summed loss in 64 bits, once all shards are merged."""
        losses = self.total.log().sub_(self.picked).mul_(labels != IGNORE)
        return losses.sum(dtype=torch.float64)


class ShardSaved(NamedTuple):
    """What the second pass needs of the first."""

    x: Tensor
    exponentials: Tensor
    """Of own logits beside the largest of them [tokens, own words], in the type of x."""
    largest: Tensor
    slope: Tensor | None
    """Of the bound of own logits, in the type of x."""


def shard_statistics(
    head: ShardWords, x: Tensor, labels: Tensor
) -> tuple[ShardStatistics, ShardSaved]:
    """The first pass over x [tokens, hidden]."""
    wide = wide_type(x)
    exponentials = x.new_empty(len(x), len(head.weight))
    slope = None if head.cap is None else torch.empty_like(exponentials)
    largest, total, picked = x.new_empty(3, len(x), dtype=wide)
    for tokens in token_chunks(head.weight, labels):
        words, own = own_labels(head.first, len(head.weight), labels[tokens])
        logits = torch.mm(x[tokens], head.weight.t(), out=exponentials[tokens]).to(wide)
        logits = _bounded(logits, head.cap, slope, tokens)
        torch.amax(logits, -1, out=largest[tokens])
        picked[tokens] = logits.gather(-1, words.unsqueeze(-1)).squeeze(-1).mul_(own)
        logits.sub_(largest[tokens].unsqueeze(-1)).exp_()
        torch.sum(logits, -1, out=total[tokens])
        if logits.data_ptr() != exponentials[tokens].data_ptr():
            exponentials[tokens] = logits
    return ShardStatistics(largest, total, picked), ShardSaved(x, exponentials, largest, slope)


def _bounded(logits: Tensor, cap: float | None, slope: Tensor | None, tokens: slice) -> Tensor:
    """Logits of some tokens, bounded; the slope of the bound is kept."""
    found, own = cap_logits(logits, cap)
    if slope is not None and own is not None:
        slope[tokens] = own
    return found


def logits_gradient(
    gradient: ShardWords, saved: ShardSaved, merged: ShardStatistics, labels: Labels
) -> Tensor:
    """The gradient of own logits, written over the exponentials; that of own words is added to
    `gradient`, which is empty where they are frozen."""
    shares, weights = merged.shares(saved.largest), labels.weights(merged.total.dtype)
    count = saved.exponentials.shape[1]
    for tokens in token_chunks(saved.exponentials.t(), labels.words):
        words, own = own_labels(gradient.first, count, labels.words[tokens])
        d = saved.exponentials[tokens].to(shares.dtype).mul_(shares[tokens].unsqueeze(-1))
        d.scatter_add_(-1, words.unsqueeze(-1), -own.to(d.dtype).unsqueeze(-1))
        d.mul_(weights[tokens].unsqueeze(-1))
        d = through_cap(d, None if saved.slope is None else saved.slope[tokens])
        if d.dtype != saved.x.dtype:
            saved.exponentials[tokens] = d
    add_product(gradient.weight, saved.x, saved.exponentials)
    return saved.exponentials


class UnscaledGradient(NamedTuple):
    """A shard's part of the input's gradient before the statistics of all shards are known."""

    product: Tensor
    """Exponentials times own words [tokens, hidden]."""
    head: ShardWords
    labels: Labels
    largest: Tensor
    """Of own words."""
    merged: ShardStatistics
    """Of own words until others are merged into it, which happens before `scaled` is asked for."""
    slope: Tensor | None
    """Of the bound of own logits."""

    def scaled(self) -> Tensor:
        """The part, written over the product."""
        weights = self.labels.weights(self.merged.total.dtype)
        factors = self.merged.shares(self.largest).mul_(weights)
        found = self.product.mul_(factors.unsqueeze(-1).to(self.product.dtype))
        words, own = own_labels(self.head.first, len(self.head.weight), self.labels.words)
        if self.slope is not None:
            weights = weights * self.slope.gather(-1, words.unsqueeze(-1)).squeeze(-1)
        rows = self.head.weight[words[own]] * weights[own].unsqueeze(-1).to(found.dtype)
        found[own] -= rows
        return found


def unscaled_gradient(
    head: ShardWords, saved: ShardSaved, merged: ShardStatistics, labels: Labels
) -> UnscaledGradient:
    """What the first pass can have of the input's gradient."""
    bent = saved.exponentials if saved.slope is None else saved.exponentials * saved.slope
    product = bent @ head.weight
    return UnscaledGradient(product, head, labels, saved.largest, merged, saved.slope)
