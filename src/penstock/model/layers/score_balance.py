"""What keeps scores and bypasses where they are useful; both work on gradients alone.

The balancer keeps the share of positive scores near the share of tokens that are kept, so that
keeping a fixed number of them in training and keeping those above 0 later agree. The limiter keeps
the features of a bypass between a least value, which falls while a model trains, and 1. Source:
arXiv:2406.06571 and the modules of Zipformer (arXiv:2310.11230) that it takes over.
"""

from math import atanh

import torch
from torch import Tensor

from penstock.arch.subsampling import Subsampling

BALANCED_WITHIN = 0.05
"""How far the share of positive scores may be from the share that is kept."""
ROOT_BOUNDS = (1.2533, 4 * 1.2533)
"""Least and largest root of the mean square of scores."""
BALANCER_SCALE = 0.04
LIMITER_CHANCE = 0.6
LEAST_SCALE = (0.9, 0.2)
"""What a bypass takes at least, at the first step and from `bypass_steps` on."""
CHANCE = (1.0, 0.25)
"""How often the balancer works, at the first step and from `balancer_steps` on."""
TINY = 1e-20


def least_scale(subsampling: Subsampling, step: int) -> float:
    """What a bypass takes at least in a step.

    >>> least_scale(Subsampling("T(T)"), 0), least_scale(Subsampling("T(T)"), 30000)
    (0.9, 0.2)
    """
    return _ramp(LEAST_SCALE, step, subsampling.bypass_steps)


def balancer_chance(subsampling: Subsampling, step: int) -> float:
    """How often the balancer works in a step."""
    return _ramp(CHANCE, step, subsampling.balancer_steps)


def _ramp(ends: tuple[float, float], step: int, steps: int) -> float:
    share = min(step / steps, 1.0)
    return ends[0] * (1 - share) + ends[1] * share


def mean_bounds(keep: float) -> tuple[float, float]:
    """Between which the mean of scores is to be, in standard deviations: a crude inverse of the
    share that is positive. Shares that nothing reaches, of 0 or 1, have no bound."""
    low, high = keep - BALANCED_WITHIN, keep + BALANCED_WITHIN
    return (
        0.8139535 * atanh(2 * low - 1) if low > 0 else -torch.inf,
        0.8139535 * atanh(2 * high - 1) if high < 1 else torch.inf,
    )


def balanced_gradient(d_scores: Tensor, scores: Tensor, keep: float) -> Tensor:
    """The gradient of scores with a push towards the bounds: scale-free, and nothing where the
    gradient is zero. Padding, whose score is minus infinity, does not count."""
    finite = scores.isfinite()
    counted = finite.to(scores)
    push = _push(torch.where(finite, scores, 0), counted, mean_bounds(keep))
    root = ((push * push).sum() / counted.sum().clamp(min=1)).sqrt().clamp(min=TINY)
    return d_scores + d_scores.abs() * (push * (BALANCER_SCALE / root))


def _push(scores: Tensor, counted: Tensor, bounds: tuple[float, float]) -> Tensor:
    """The gradient of |m - clamp(m)| + |log(clamp(r) / r)| of all scores that count, where m is
    their mean in standard deviations and r the root of their mean square."""
    number = counted.sum().clamp(min=1)
    mean = scores.sum() / number
    square, off_mean = (scores * scores).sum() / number, (scores - mean) * counted
    deviation = ((off_mean * off_mean).sum() / number).clamp(min=TINY).sqrt()
    root, m = square.clamp(min=TINY).sqrt(), mean / deviation
    off = torch.sign(m - m.clamp(*bounds))
    by_mean = (1 - m * (scores - mean) / deviation) / deviation
    beyond = torch.sign(root - root.clamp(*ROOT_BOUNDS))
    return counted * (off * by_mean + beyond * scores / (root * root)) / number


def limited_gradient(gradient: Tensor, scale: Tensor, least: float) -> Tensor:
    """The gradient of a bypass, turned round where a step by it would leave the range further."""
    outside = ((scale < least) & (gradient > 0)) | ((scale > 1) & (gradient < 0))
    return torch.where(outside, -gradient, gradient)
