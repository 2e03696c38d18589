"""What a rank has of a slice, and the seconds that a layer takes for it."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.cost.collectives import FORWARD_KINDS


class UnitTokens(NamedTuple):
    """What a rank has of a slice, all rows together."""

    held: int
    """Tokens between blocks."""
    whole: int
    """Tokens inside blocks."""
    attended: int
    """Tokens inside attention: those of all ranks that exchange heads for them."""
    pairs: float
    """Query-key pairs that are not masked."""
    square: float
    """All of them, also those that a mask or a window hides."""
    rows: int = 1
    """Sequences that have these tokens together, all as many."""

    @property
    def keys(self) -> float:
        """Keys that are not masked, for each query."""
        return self.pairs / max(self.attended, 1)


class LayerSeconds(NamedTuple):
    """Seconds of a layer's passes."""

    forward: float
    inputs: float
    """The gradient of its input."""
    weights: float


class LayerColumns(NamedTuple):
    """The same of a layer in some slices."""

    forward: NDArray[np.float64]
    inputs: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, slices: Iterable[LayerSeconds]) -> "LayerColumns":
        """From those of each slice."""
        return cls(*np.array([*slices]).T)

    def of_kind(self, kind: str) -> NDArray[np.float64]:
        """Of ops of a kind."""
        backward = {"I": self.inputs, "W": self.weights, "B": self.inputs + self.weights}
        return self.forward if kind in FORWARD_KINDS else backward.get(kind, 0 * self.forward)

    def of_kinds(self, kinds: Iterable[str]) -> NDArray[np.float64]:
        """The same of each of some kinds."""
        return np.array([*map(self.of_kind, kinds)])
