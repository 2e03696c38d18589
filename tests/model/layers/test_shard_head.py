"""The head on shards: two passes, with either of them starting the backward."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from penstock.arch.layers import lm_head as head_record
from penstock.data.batch import IGNORE
from penstock.model.layers.shard_head import (
    Labels,
    ShardWords,
    logits_gradient,
    shard_statistics,
    unscaled_gradient,
)

pytestmark = pytest.mark.torch

TOKENS, HIDDEN, SCALE = 11, 6, 0.125
CUTS = (0, 4, 5, 12, 23)
"""Shards of 4, 1, 7 and 11 words."""


def _sample(size: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(5)
    head = torch.randn(CUTS[-1], HIDDEN, generator=numbers, dtype=torch.float64)
    x = torch.randn(TOKENS, HIDDEN, generator=numbers, dtype=torch.float64) * size
    labels = torch.randint(CUTS[-1], (TOKENS,), generator=numbers)
    labels[[2, 7]] = IGNORE
    labels[3], labels[4] = 4, CUTS[-1] - 1
    return head.to(dtype), x.to(dtype), labels


def _right(head: Tensor, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, and gradients of input and head, by autograd."""
    head, x = (each.clone().double().requires_grad_() for each in (head, x))
    loss = functional.cross_entropy(x @ head.t(), labels, ignore_index=IGNORE, reduction="sum")
    (loss * SCALE).backward()
    return loss.detach(), x.grad, head.grad


def _on_shards(
    head: Tensor, x: Tensor, labels: Tensor, *, early: bool
) -> tuple[list[Tensor], Tensor, Tensor]:
    """What shards come to that meet where a collective would be; `early` where the first pass
    starts the backward."""
    shards = [ShardWords(head[start:stop], start) for start, stop in pairwise(CUTS)]
    wanted = Labels(labels, SCALE)
    found = [shard_statistics(shard, x, labels) for shard in shards]
    parts = [unscaled_gradient(s, saved, stat, wanted) for s, (stat, saved) in zip(shards, found)]
    together = torch.stack([stat.stacked() for stat, _ in found])
    for stat, _ in found:
        stat.merge(together.clone())
    dx = sum(part.scaled() for part in parts) if early else torch.zeros_like(x)
    gradient = torch.zeros_like(head)
    for shard, (stat, saved) in zip(shards, found):
        own = ShardWords(gradient[shard.first :][: len(shard.weight)], shard.first)
        d = logits_gradient(own, saved, stat, wanted)
        assert d.shape == (TOKENS, len(shard.weight))
        if not early:
            dx += d @ shard.weight
    return [stat.losses(labels) for stat, _ in found], dx, gradient


both = pytest.mark.parametrize("early", [False, True], ids=["algorithm 1", "algorithm 2"])


@both
@pytest.mark.parametrize("size", [1.0, 300.0], ids=["usual", "large logits"])
def test_shards_of_any_sizes_give_what_the_whole_gives(size: float, early: bool) -> None:
    head, x, labels = _sample(size)
    loss, dx, gradient = _right(head, x, labels)
    losses, found, own = _on_shards(head, x, labels, early=early)
    for each in losses:
        torch.testing.assert_close(each, loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(found, dx, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(own, gradient, rtol=1e-10, atol=1e-12)


@both
def test_sixteen_bits_are_as_near_as_they_can_be(early: bool) -> None:
    head, x, labels = _sample(dtype=torch.bfloat16)
    loss, dx, gradient = _right(head, x, labels)
    losses, found, own = _on_shards(head, x, labels, early=early)
    assert float(losses[0]) == pytest.approx(float(loss), rel=2e-2)
    assert float((found - dx).norm() / dx.norm()) < 4e-2
    assert float((own - gradient).norm() / gradient.norm()) < 4e-2


@both
def test_tokens_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch, early: bool) -> None:
    head, x, labels = _sample()
    right = _on_shards(head, x, labels, early=early)
    monkeypatch.setattr(head_record, "LOGITS_AT_A_TIME", 22)
    torch.testing.assert_close(_on_shards(head, x, labels, early=early), right)


def test_a_label_that_does_not_count_has_no_gradient() -> None:
    head, x, labels = _sample()
    _, dx, _ = _on_shards(head, x, labels, early=True)
    assert not dx[labels == IGNORE].any()
    assert dx[labels != IGNORE].any(dim=1).all()
