"""Tensors to lose on a disk that fails."""

from collections.abc import Mapping

import torch
from torch import Tensor


def tensors(step: int) -> dict[str, Tensor]:
    """A small model with its optimizer, as it is at a step."""
    made = torch.Generator().manual_seed(step)
    return {
        "weights/model.norm.weight": torch.randn(16, generator=made),
        "exp_avg/model.norm.weight": torch.randn(3, 5, generator=made, dtype=torch.float64),
        "exp_avg_sq/model.norm.weight": torch.randn(7, generator=made).bfloat16(),
        "steps/model.norm.weight": torch.tensor(step),
    }


def empty_like(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in values.items()}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether all bits agree."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )
