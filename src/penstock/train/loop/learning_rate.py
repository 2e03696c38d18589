"""The learning rate of each step: a rise at the start, then one of a few curves.

Steps count from 0. A warm-up of n steps rises in equal parts, so that its last step has the full
rate. `cosine` starts from the full rate and `wsd` (warm-up, stable, decay: arXiv:2404.06395) stays
at it; both have exactly the minimum at the last step of the run.

    rate     constant  ___________      cosine  __            wsd  ________
                      /                        /  \\_               /        \\_
    minimum          /                        /     \\__          /           \\
"""

from collections.abc import Callable
from math import cos, pi

from penstock.errors import ShapeError
from penstock.train.config.sections import OptimizerSettings
from penstock.train.config.settings import Settings

DecayShare = Callable[[OptimizerSettings, int, int], float]
"""Part of the way from the full rate (0) to the minimum (1): settings, step, steps of the run."""


def rate_at(settings: Settings, step: int) -> float:
    """The learning rate of a step of a run."""
    steps, optimizer = settings.run.steps, settings.optimizer
    if not 0 <= step < steps:
        raise ShapeError(
            f"step {step} has no learning rate: the run has steps 0 to {steps - 1}",
            hint="raise run.steps",
        )
    if step < optimizer.warmup_steps:
        return optimizer.learning_rate * ((step + 1) / optimizer.warmup_steps)
    fallen = CURVES[optimizer.schedule](optimizer, step, steps)
    return optimizer.learning_rate * (1 - fallen + fallen * optimizer.minimum_factor)


def constant(settings: OptimizerSettings, step: int, steps: int) -> float:
    """No way at all."""
    return 0.0


def cosine(settings: OptimizerSettings, step: int, steps: int) -> float:
    """Half a cosine from the first step after the warm-up to the last."""
    length = steps - 1 - settings.warmup_steps
    return (1 - cos(pi * (step - settings.warmup_steps) / length)) / 2 if length else 0.0


def wsd(settings: OptimizerSettings, step: int, steps: int) -> float:
    """Equal parts of the way in each of the last `decay_steps` steps."""
    return max(0, step + 1 - (steps - settings.decay_steps)) / settings.decay_steps


CURVES: dict[str, DecayShare] = {"constant": constant, "cosine": cosine, "wsd": wsd}
