"""The weights of a stage: what it computes with, and the gradients it adds up.

Matrices that are applied to one input (queries, keys and values; gate and up) are multiplied in one
go. That needs them side by side in memory, while the outside knows each by its own name. So a stage
lays all its parameters into flat buffers, in a fixed order, and everything else is a view: a
parameter by name, or several neighbours as one matrix. Reductions over replicas and the optimizer
work on whole buffers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

Sizes = Mapping[str, tuple[int, ...]]


class Matrix(NamedTuple):
    """A matrix (or several, stacked) as the layers use it."""

    value: Tensor
    """[outputs, inputs], in the type that is computed in."""
    grad: Tensor
    """The same, in the type that gradients are added up in."""
    bias: Tensor | None = None
    bias_grad: Tensor | None = None


class Vector(NamedTuple):
    """The weight of a norm, or a bias."""

    value: Tensor
    grad: Tensor


@dataclass(frozen=True, eq=False)
class Weights:
    """Flat buffers of one stage. `main` is what the optimizer updates, `value` what is computed
    with: the same memory where both have one type."""

    sizes: Sizes
    offsets: Mapping[str, int]
    main: Tensor
    value: Tensor
    grad: Tensor

    @classmethod
    def empty(
        cls, sizes: Sizes, *, dtype: torch.dtype, main: torch.dtype, device: torch.device
    ) -> "Weights":
        """Buffers for parameters of these sizes, laid out in this order."""
        offsets, total = {}, 0
        for name, size in sizes.items():
            offsets[name] = total
            total += prod(size)
        kept = torch.zeros(total, dtype=main, device=device)
        value = kept if dtype == main else torch.zeros(total, dtype=dtype, device=device)
        return cls(dict(sizes), offsets, kept, value, torch.zeros_like(kept))

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters of a buffer by name, as views."""
        return {name: self._view(flat, (name,)) for name in self.sizes}

    def matrix(self, *names: str) -> Matrix:
        """Neighbouring matrices as one, with their biases where they have some."""
        weights = [f"{name}.weight" for name in names]
        value, grad = self._view(self.value, weights), self._view(self.grad, weights)
        biases = [bias for name in names if (bias := f"{name}.bias") in self.sizes]
        if not biases:
            return Matrix(value, grad)
        return Matrix(value, grad, self._view(self.value, biases), self._view(self.grad, biases))

    def vector(self, name: str) -> Vector:
        return Vector(self._view(self.value, (name,)), self._view(self.grad, (name,)))

    def publish(self) -> None:
        """Compute with what the optimizer has made of the weights."""
        if self.value is not self.main:
            self.value.copy_(self.main)

    def _view(self, flat: Tensor, names: list[str] | tuple[str, ...]) -> Tensor:
        """Parameters that lie one behind the other, stacked along their first dimension."""
        start, rows = self.offsets[names[0]], sum(self.sizes[name][0] for name in names)
        size = (rows, *self.sizes[names[0]][1:])
        end = self.offsets[names[-1]] + prod(self.sizes[names[-1]])
        return flat[start:end].view(size)
