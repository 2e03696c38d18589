"""AdamW on the main weights of a stage that a rank owns, clipped by the norm of the whole model."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.optim.adamw import adamw

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
    validation: str = "before"
    """When the norm of all stages is looked at: before a stage is updated, or after
    (run/step/validation.py)."""
    host_stages: frozenset[int] = frozenset()
    """Stages whose main weights and moments are on the host (run/step/host_state.py)."""


@dataclass(frozen=True)
class NoUpdate:
    """For an engine whose steps are only looked at: it has no moments, and updates nothing."""

    clip: float = 0.0
    validation: str = "before"
    host_stages: frozenset[int] = frozenset()


class StageOptimizer(Protocol):
    """Updates the weights of one stage: matrices decay, norms and biases do not.

    Its moments are there from the start and not from the first step on, so that they can be
    loaded, and so that memory is refused at once where there is too little.
    """

    moments: Mapping[str, Tensor]
    """Flat buffers by name, which have what this rank owns."""
    steps: int
    """Updates that the moments have seen."""

    def take_gradient(self) -> None:
        """The gradient is complete; where updates are made elsewhere, it goes there."""
        ...

    def update(self, rate: float, factor: float) -> None:
        """One update with the gradient times `factor`, published to what is computed with."""
        ...


class InPlace:
    """For optimizers that update where the gradient is."""

    def take_gradient(self) -> None:
        return None


def make_optimizer(settings: AdamW | NoUpdate, weights: Weights) -> StageOptimizer:
    """The optimizer of a stage: one kernel over its flat buffers where that can be, else
    PyTorch's; the kernel has one learning rate."""
    if isinstance(settings, NoUpdate):
        return Frozen()
    one_rate = all(part.part.rate == 1 for part in weights.own.parts.values())
    return (FusedAdamW if fusible(weights.main) and one_rate else TorchAdamW)(settings, weights)


class Frozen(InPlace):
    """Updates nothing."""

    moments: Mapping[str, Tensor] = {}
    steps = 0

    def update(self, rate: float, factor: float) -> None:
        self.steps += 1


class ParameterGroup(NamedTuple):
    """Parameters that decay alike and have one learning rate, each with its gradient, its moments
    and its count of updates."""

    decay: float
    rate: float
    """What the learning rate is multiplied by."""
    mains: list[Tensor]
    grads: list[Tensor]
    firsts: list[Tensor]
    seconds: list[Tensor]
    steps: list[Tensor]

    @classmethod
    def empty(cls, decay: float, rate: float) -> "ParameterGroup":
        return cls(decay, rate, [], [], [], [], [])


class TorchAdamW(InPlace):
    """AdamW of PyTorch, parameter by parameter.

    It is PyTorch's function and not its class, because making an object of the class loads the
    compiler, which takes seconds at the start of every process.
    """

    def __init__(self, settings: AdamW, weights: Weights) -> None:
        self._settings, self._weights = settings, weights
        self.moments = new_moments(weights)
        found: dict[tuple[float, float], ParameterGroup] = {}
        buffers = (weights.main, weights.grad, *self.moments.values())
        mains, grads, firsts, seconds = map(weights.owned, buffers)
        for name, part in weights.own.parts.items():
            kind = (settings.weight_decay if len(part.shape) > 1 else 0.0, part.part.rate)
            group, main = found.setdefault(kind, ParameterGroup.empty(*kind)), mains[name]
            group.mains.append(main)
            group.grads.append(grads[name])
            group.firsts.append(firsts[name])
            group.seconds.append(seconds[name])
            group.steps.append(torch.tensor(0.0, device=main.device if main.is_cuda else None))
        self._groups = tuple(found.values())

    @torch.no_grad()
    def update(self, rate: float, factor: float) -> None:
        if factor < 1:
            for run in self._weights.own.runs:
                self._weights.owned_run(self._weights.grad, run).mul_(factor)
        for group in self._groups:
            self._update(group, rate)
        self._weights.publish()

    def _update(self, group: ParameterGroup, rate: float) -> None:
        (beta1, beta2), fused = self._settings.betas, self._weights.main.is_cuda
        adamw(
            group.mains,
            group.grads,
            group.firsts,
            group.seconds,
            [],
            group.steps,
            foreach=not fused,
            fused=fused,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=rate * group.rate,
            weight_decay=group.decay,
            eps=self._settings.epsilon,
            maximize=False,
        )

    @property
    def steps(self) -> int:
        """PyTorch counts for each parameter by itself."""
        return max((int(step) for step in self._counts()), default=0)

    @steps.setter
    def steps(self, steps: int) -> None:
        for step in self._counts():
            step.fill_(float(steps))

    def _counts(self) -> list[Tensor]:
        return [step for group in self._groups for step in group.steps]


class FusedAdamW(InPlace):
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
