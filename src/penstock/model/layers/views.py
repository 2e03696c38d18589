"""Weights, or their gradients, as layers take them: views of a flat buffer, made once.

Layers own no tensors. They are given small tuples of views, one of values and one of gradients,
and the buffer behind them may be another one in the next op. Matrices that are applied to one input
(queries, keys and values; gate and up) lie side by side and are seen as one.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.parameter_layout import ParameterLayout


class Matrix(NamedTuple):
    """A matrix (or several, stacked) with its bias: values, or gradients."""

    weight: Tensor
    """[outputs, inputs]"""
    bias: Tensor | None
    number: int
    """Among the matrices of its stage: where a gradient that was put off is added."""


class Views:
    """Makes the views of one flat buffer, and numbers its matrices as they are asked for."""

    def __init__(self, layout: ParameterLayout, flat: Tensor) -> None:
        self._parts, self._flat = layout.parts_in(len(flat)), flat
        self.matrices: list[Tensor] = []

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def matrix(self, *names: str) -> Matrix:
        """Neighbouring matrices as one, with their biases where they have some."""
        weight = self.vector(*(f"{name}.weight" for name in names))
        self.matrices.append(weight)
        biases = [f"{name}.bias" for name in names if f"{name}.bias" in self._parts]
        return Matrix(weight, self.vector(*biases) if biases else None, len(self.matrices) - 1)

    def flat(self, *names: str) -> Tensor:
        """Parameters that lie one behind the other, as they lie."""
        return self._flat[self._parts[names[0]].offset : self._parts[names[-1]].stop]

    def vector(self, *names: str) -> Tensor:
        """Parameters that lie one behind the other, stacked along their first axis."""
        parts = [self._parts[name] for name in names]
        rows = sum(part.local_shape[0] for part in parts)
        size = (rows, *parts[0].local_shape[1:])
        return self._flat[parts[0].offset : parts[-1].stop].view(size)
