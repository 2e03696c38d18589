"""The learning rate of each step: a rise at the start, then one of a few curves.

Steps count from 0. A warm-up of n steps rises in equal parts, so that its last step has the full
rate. `cosine` starts from the full rate and `wsd` (warm-up, stable, decay: arXiv:2404.06395) stays
at it; both have exactly the minimum at the last step that they are planned for. A run may go on
behind that step: the rate stays what it was there.

    rate     constant  ___________      cosine  __            wsd  ________
                      /                        /  \\_               /        \\_
    minimum          /                        /     \\__          /           \\
"""

from collections.abc import Callable, Mapping
from math import cos, pi
from typing import Any

from penstock.errors import ShapeError
from penstock.train.config.sections import OptimizerSettings
from penstock.train.config.settings import Settings

PLANNED = "schedule_steps"
"""Key of a checkpoint's state: steps over which the learning rate was planned."""

DecayShare = Callable[[OptimizerSettings, int, int], float]
"""Part of the way from the full rate (0) to the minimum (1): settings, step, planned steps."""


def rate_at(optimizer: OptimizerSettings, step: int, planned: int) -> float:
    """The learning rate of a step, where it is planned over so many steps."""
    if step < 0:
        raise ShapeError(f"step {step} has no learning rate", hint="steps count from 0")
    if step < optimizer.warmup_steps:
        return optimizer.learning_rate * ((step + 1) / optimizer.warmup_steps)
    last = max(planned - 1, optimizer.warmup_steps)
    fallen = CURVES[optimizer.schedule](optimizer, min(step, last), last + 1)
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


def kept_steps(settings: Settings, stored: Mapping[str, Any]) -> int:
    """Steps over which a run that goes on plans its learning rate: unless it is told, as before."""
    return settings.optimizer.schedule_steps or int(stored.get(PLANNED, settings.run.steps))


def plan_notes(settings: Settings, stored: Mapping[str, Any], done: int) -> list[str]:
    """What a run that goes on says of its learning rate, where one could expect another."""
    optimizer, steps = settings.optimizer, settings.run.steps
    planned, before = kept_steps(settings, stored), int(stored.get(PLANNED, steps))
    rate = rate_at(optimizer, done, planned)
    if optimizer.schedule == "constant" or done >= steps or {planned, before} == {steps}:
        return []
    if planned != before:
        last = rate_at(optimizer, max(done - 1, 0), before)
        return [
            f"the learning rate is planned again, over {planned} steps instead of {before}: it was "
            f"{last:.4g} in step {done} and is {rate:.4g} in step {done + 1}"
        ]
    return [
        f"the learning rate keeps its plan of {before} steps, though run.steps is {steps}: it is "
        f"{rate:.4g} in step {done + 1}; optimizer.schedule_steps={steps} plans it again"
    ]
