"""AdamW on the main weights of a stage, clipped by the norm of the whole model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.model.stages.weights import Weights


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


def make_optimizer(settings: AdamW | NoUpdate, weights: Weights) -> torch.optim.Optimizer:
    """The optimizer of a stage, which knows its main weights and their gradients."""
    if isinstance(settings, NoUpdate):
        return torch.optim.SGD([{"params": [*weights.named(weights.main).values()]}], lr=0.0)
    return make_adam(settings, weights)


def make_adam(settings: AdamW, weights: Weights) -> torch.optim.AdamW:
    """AdamW of a stage: matrices decay, norms and biases do not.

    Its state is there from the start and not from the first step on, so that it can be loaded, and
    so that memory is refused at once where there is too little.
    """
    fused = weights.main.is_cuda
    groups: tuple[list[Tensor], list[Tensor]] = ([], [])
    state: dict[Tensor, dict[str, Tensor]] = {}
    grads = weights.named(weights.grad)
    first, second = (weights.named(torch.zeros_like(weights.main)) for _ in range(2))
    for name, main in weights.named(weights.main).items():
        main.grad = grads[name]
        groups[main.ndim > 1].append(main)
        moments = {"exp_avg": first[name], "exp_avg_sq": second[name]}
        state[main] = {"step": torch.tensor(0.0, device=main.device if fused else None), **moments}
    plain, decaying = groups
    optimizer = torch.optim.AdamW(
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
    optimizer.state.update(state)
    return optimizer


def clip_factor(norm: float, limit: float) -> float:
    """What gradients are multiplied by so that their norm is at most `limit`."""
    return limit / norm if 0 < limit < norm else 1.0
