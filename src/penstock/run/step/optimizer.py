"""AdamW on the main weights of a device's stages, clipped by the norm of the whole model.

The norm is a sum over the parameters of all devices. Each device writes the squares of its own into
a list that has a place for every parameter of the model, and the list is added up over devices: all
other entries are zero, so the sum is exact, and adding it up in the order of the model gives the
same norm however the model is spread.
"""

from collections.abc import Iterable, Mapping
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


def make_optimizer(settings: AdamW, weights: Iterable[Weights]) -> torch.optim.AdamW:
    """The optimizer of some stages: matrices decay, norms and biases do not.

    Its state is there from the start and not from the first step on, so that it can be loaded, and
    so that memory is refused at once where there is too little.
    """
    groups: tuple[list[Tensor], list[Tensor]] = ([], [])
    state: dict[Tensor, dict[str, Tensor]] = {}
    for stage in weights:
        grads = stage.named(stage.grad)
        first, second = (stage.named(torch.zeros_like(stage.main)) for _ in range(2))
        for name, main in stage.named(stage.main).items():
            main.grad = grads[name]
            groups[main.ndim > 1].append(main)
            moments = {"exp_avg": first[name], "exp_avg_sq": second[name]}
            state[main] = {"step": torch.tensor(0.0), **moments}
    plain, decaying = groups
    optimizer = torch.optim.AdamW(
        [
            {"params": plain, "weight_decay": 0.0},
            {"params": decaying, "weight_decay": settings.weight_decay},
        ],
        lr=0.0,
        betas=settings.betas,
        eps=settings.epsilon,
        foreach=True,
    )
    optimizer.state.update(state)
    return optimizer


def squares(names: Mapping[str, int], weights: Iterable[Weights], copies: Iterable[str]) -> Tensor:
    """The square of each parameter's gradient norm at its place in the model, in 64 bits.

    Copies of a weight that lives elsewhere are not counted again.
    """
    found = torch.zeros(len(names), dtype=torch.float64)
    for stage in weights:
        for name, grad in stage.named(stage.grad).items():
            if name not in copies:
                found[names[name]] = torch.linalg.vector_norm(grad, dtype=torch.float64).square()
    return found


def clip_factor(norm: float, limit: float) -> float:
    """What gradients are multiplied by so that their norm is at most `limit`."""
    return limit / norm if 0 < limit < norm else 1.0
