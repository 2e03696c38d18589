"""Weights, or their gradients, as layers take them: views of a flat buffer, made once.

Layers own no tensors. They are given small tuples of views, one of values and one of gradients,
and the buffer behind them may be another one in the next op. Matrices that are applied to one input
(queries, keys and values; gate and up) lie side by side and are seen as one. What is frozen has its
values in a buffer of its own; its gradient is a view of no elements.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.lora import adapter_names
from penstock.arch.parameter_layout import ParameterLayout


class AdapterUp(NamedTuple):
    """The second matrix of an adapter: to some outputs of a product."""

    weight: Tensor
    """B [outputs, rank]"""
    number: int
    between: slice
    """Its columns among those between A and B."""
    outputs: slice


class Adapters(NamedTuple):
    """Adapters of matrices that have one input: values, or gradients."""

    down: Tensor
    """A of all of them, stacked [ranks, inputs]."""
    number: int
    ups: tuple[AdapterUp, ...]
    scale: float


class Matrix(NamedTuple):
    """A matrix (or several, stacked) with its bias: values, or gradients."""

    weight: Tensor
    """[outputs, inputs]; a gradient of no elements where it is frozen"""
    bias: Tensor | None
    number: int
    """Among the matrices of its stage: where a gradient that was put off is added."""
    adapters: Adapters | None = None


class Views:
    """Makes the views of one flat buffer, and numbers its matrices as they are asked for."""

    def __init__(
        self,
        layout: ParameterLayout,
        flat: Tensor,
        frozen: Tensor | None = None,
        scale: float = 1.0,
    ) -> None:
        """Of gradients there are none of what is `frozen`; adapters are multiplied by `scale`."""
        self._layout, self._flat, self._frozen, self._scale = layout, flat, frozen, scale
        self._parts = layout.parts_in(len(flat))
        self.matrices: list[Tensor] = []

    def __contains__(self, name: str) -> bool:
        return name in self._layout

    def span(self, name: str) -> tuple[int, int]:
        """Elements of a vector on all ranks together, and how many ranks have the same ones."""
        part = self._layout.part(name)
        return part.shape[0], len(part.holders)

    def matrix(self, *names: str) -> Matrix:
        """Neighbouring matrices as one, with their biases and adapters where they have some."""
        weight = self.vector(*(f"{name}.weight" for name in names))
        number = self._numbered(weight)
        biases = [f"{name}.bias" for name in names if f"{name}.bias" in self]
        bias = self.vector(*biases) if biases else None
        return Matrix(weight, bias, number, self._adapters(names))

    def flat(self, *names: str) -> Tensor:
        """Parameters that lie one behind the other, as they lie."""
        return self._flat[self._parts[names[0]].offset : self._parts[names[-1]].stop]

    def vector(self, *names: str) -> Tensor:
        """Parameters that lie one behind the other, stacked along their first axis."""
        flat, known, frozen = self._flat, self._parts, self._layout.frozen
        if frozen is not None and names[0] in frozen:
            if self._frozen is None:
                return self._flat[:0]
            flat, known = self._frozen, frozen.parts_in(len(self._frozen))
        parts = [known[name] for name in names]
        rows = sum(part.local_shape[0] for part in parts)
        size = (rows, *parts[0].local_shape[1:])
        return flat[parts[0].offset : parts[-1].stop].view(size)

    def _numbered(self, matrix: Tensor) -> int:
        self.matrices.append(matrix)
        return len(self.matrices) - 1

    def _adapters(self, names: tuple[str, ...]) -> Adapters | None:
        """Those of stacked matrices, as far as these have some."""
        pairs = {name: adapter_names(name) for name in names}
        present = {name: pair for name, pair in pairs.items() if pair[0] in self._parts}
        if not present:
            return None
        down = self.vector(*(pair[0] for pair in present.values()))
        number, ups = self._numbered(down), list[AdapterUp]()
        first = between = 0
        for name in names:
            outputs = self._layout.part(f"{name}.weight").local_shape[0]
            if name in present:
                up = self.vector(present[name][1])
                columns = slice(between, between + up.shape[1])
                rows = slice(first, first + outputs)
                ups.append(AdapterUp(up, self._numbered(up), columns, rows))
                between = columns.stop
            first += outputs
        return Adapters(down, number, tuple(ups), self._scale)
