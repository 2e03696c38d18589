"""AdamW on flat buffers is AdamW, and clips by the norm it is told."""

import pytest
import torch
from torch import Tensor

from model.samples import random_weights
from penstock.run.step.optimizer import AdamW, NoUpdate, clip_factor, make_optimizer

pytestmark = pytest.mark.torch

SIZES = {"norm.weight": (4,), "m.weight": (3, 4), "m.bias": (3,)}
SETTINGS = AdamW(betas=(0.8, 0.9), epsilon=1e-3, weight_decay=0.2)


def _by_hand(main: Tensor, grads: list[Tensor], decay: float, rate: float) -> Tensor:
    """AdamW as its paper has it."""
    value, first, second = main.clone(), torch.zeros_like(main), torch.zeros_like(main)
    for step, grad in enumerate(grads, 1):
        value = value * (1 - rate * decay)
        first = 0.8 * first + 0.2 * grad
        second = 0.9 * second + 0.1 * grad**2
        scaled = (second / (1 - 0.9**step)).sqrt() + 1e-3
        value = value - rate * first / (1 - 0.8**step) / scaled
    return value


def test_three_steps_are_those_of_the_paper_and_only_matrices_decay() -> None:
    weights = random_weights(SIZES)
    before = {name: main.clone() for name, main in weights.named(weights.main).items()}
    optimizer = make_optimizer(SETTINGS, weights)
    grads: dict[str, list[Tensor]] = {name: [] for name in SIZES}
    for _ in range(3):
        weights.grad.normal_()
        for name, grad in weights.named(weights.grad).items():
            grads[name].append(grad.clone())
        optimizer.update(0.05, 1.0)
    for name, main in weights.named(weights.main).items():
        expected = _by_hand(before[name], grads[name], 0.2 * (main.ndim > 1), 0.05)
        torch.testing.assert_close(main, expected, rtol=1e-12, atol=1e-14)


def test_its_state_is_there_before_the_first_step() -> None:
    weights = random_weights(SIZES)
    optimizer = make_optimizer(SETTINGS, weights)
    assert [moment.numel() for moment in optimizer.moments.values()] == [19, 19]
    assert optimizer.steps == 0


def test_an_update_clips_by_its_factor() -> None:
    clipped, halved = random_weights(SIZES), random_weights(SIZES)
    for weights, factor in ((clipped, 0.5), (halved, 1.0)):
        weights.main.fill_(1.0)
        weights.grad.copy_(torch.arange(19.0) * (1.0 if factor < 1 else 0.5))
        make_optimizer(SETTINGS, weights).update(0.05, factor)
    assert torch.equal(clipped.main, halved.main)


def test_without_updates_there_are_no_moments_and_weights_stay() -> None:
    weights = random_weights(SIZES)
    before = weights.main.clone()
    optimizer = make_optimizer(NoUpdate(), weights)
    optimizer.update(0.05, 1.0)
    assert not optimizer.moments
    assert torch.equal(weights.main, before)


def test_gradients_are_clipped_only_above_the_limit() -> None:
    assert clip_factor(4.0, 1.0) == 0.25
    assert clip_factor(0.5, 1.0) == 1.0
    assert clip_factor(1.0, 1.0) == 1.0
    assert clip_factor(4.0, 0.0) == 1.0
    assert clip_factor(0.0, 1.0) == 1.0
