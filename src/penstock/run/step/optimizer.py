"""AdamW on the main weights of a stage that a rank owns, clipped by the norm of the whole model."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol

import torch
from torch import Tensor

from penstock.model.kernels.choice import fusible
from penstock.model.stages.weights import Weights

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Names that checkpoints and PyTorch have for the moments."""


@dataclass(frozen=True)
class AdamW:
    """What the optimizer is told, beside the rate that changes from step to step."""

    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    """Largest norm of the gradient; 0 leaves it as it is."""


@dataclass(frozen=True)
class NoUpdate:
    """For an engine whose steps are only looked at: it has no moments, and updates nothing."""

    clip: float = 0.0


class StageOptimizer(Protocol):
    """Updates the weights of one stage: matrices decay, norms and biases do not.

    Its moments are there from the start and not from the first step on, so that they can be
    loaded, and so that memory is refused at once where there is too little.
    """

    moments: Mapping[str, Tensor]
    """Flat buffers by name, which have what this rank owns."""
    steps: int
    """Updates that the moments have seen."""

    def update(self, rate: float, factor: float) -> None:
        """One update with the gradient times `factor`, published to what is computed with."""
        ...


def make_optimizer(settings: AdamW | NoUpdate, weights: Weights) -> StageOptimizer:
    """The optimizer of a stage: one kernel over its flat buffers where that can be, else
    PyTorch's."""
    if isinstance(settings, NoUpdate):
        return Frozen()
    return (FusedAdamW if fusible(weights.main) else TorchAdamW)(settings, weights)


class Frozen:
    """Updates nothing."""

    moments: Mapping[str, Tensor] = {}
    steps = 0

    def update(self, rate: float, factor: float) -> None:
        self.steps += 1


class TorchAdamW:
    """AdamW of PyTorch, parameter by parameter."""

    def __init__(self, settings: AdamW, weights: Weights) -> None:
        self._weights = weights
        self.moments = new_moments(weights)
        first, second = (weights.owned(moment) for moment in self.moments.values())
        grads, mains = weights.owned(weights.grad), weights.owned(weights.main)
        groups: tuple[list[Tensor], list[Tensor]] = ([], [])
        state: dict[Tensor, dict[str, Any]] = {}
        for name, part in weights.own.parts.items():
            main = mains[name]
            main.grad = grads[name]
            groups[len(part.shape) > 1].append(main)
            step = torch.tensor(0.0, device=main.device if main.is_cuda else None)
            state[main] = {"step": step, "exp_avg": first[name], "exp_avg_sq": second[name]}
        self._state = state
        self._adam = self._make(settings, *groups)

    def _make(
        self, settings: AdamW, plain: list[Tensor], decaying: list[Tensor]
    ) -> torch.optim.AdamW:
        fused = self._weights.main.is_cuda
        adam = torch.optim.AdamW(
            [
                {"params": plain, "weight_decay": 0.0},
                {"params": decaying, "weight_decay": settings.weight_decay},
            ],
            lr=0.0,
            betas=settings.betas,
            eps=settings.epsilon,
            foreach=None if fused else True,
            fused=fused or None,
        )
        adam.state.update(self._state)
        return adam

    def update(self, rate: float, factor: float) -> None:
        if factor < 1:
            for run in self._weights.own.runs:
                self._weights.owned_run(self._weights.grad, run).mul_(factor)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._weights.publish()

    @property
    def steps(self) -> int:
        """PyTorch counts for each parameter by itself."""
        return max((int(state["step"]) for state in self._state.values()), default=0)

    @steps.setter
    def steps(self, steps: int) -> None:
        for state in self._state.values():
            state["step"].fill_(float(steps))


class FusedAdamW:
    """AdamW with clipping and publication in one kernel over flat buffers."""

    def __init__(self, settings: AdamW, weights: Weights) -> None:
        from penstock.model.kernels.adamw import Blocks  # deferred: needs Triton

        self._settings, self._weights, self.steps = settings, weights, 0
        self.moments = new_moments(weights)
        self._blocks = [
            Blocks.of(weights.own.parts_of(run), weights.main.device) for run in weights.own.runs
        ]

    def update(self, rate: float, factor: float) -> None:
        from penstock.model.kernels.adamw import Update, fused_update  # deferred: needs Triton

        self.steps += 1
        settings, weights = self._settings, self._weights
        (beta1, beta2), decay = settings.betas, settings.weight_decay
        first, second = (1 - beta**self.steps for beta in settings.betas)
        numbers = Update(
            factor, rate / first, 1 - rate * decay, beta1, beta2, sqrt(second), settings.epsilon
        )
        buffers = (weights.main, weights.value, weights.grad, *self.moments.values())
        for run, blocks in zip(weights.own.runs, self._blocks):
            main, value, grad, *both = (weights.owned_run(flat, run) for flat in buffers)
            fused_update(main, value, grad, (both[0], both[1]), blocks, numbers)


def new_moments(weights: Weights) -> Mapping[str, Tensor]:
    return {name: weights.main.new_zeros(weights.own.elements) for name in MOMENTS}


def clip_factor(norm: float, limit: float) -> float:
    """What gradients are multiplied by so that their norm is at most `limit`."""
    return limit / norm if 0 < limit < norm else 1.0
