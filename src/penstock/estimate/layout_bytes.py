"""Bytes that the ops of a layout hold: those of a rank, with rows side by side and layers that are
computed again."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.core.schedule import Schedule
from penstock.cost.cell_cost import CellCost
from penstock.cost.shares import Scaled
from penstock.cost.workload import Workload
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layers_again import CHANGED_BYTES, KindOfLayers, LayersAgain


@dataclass(frozen=True, kw_only=True)
class LayoutBytes(CellCost):
    """The sizes of one rank's buffers."""

    rows: int = 1
    """Sequences side by side."""
    again: int = 0
    """Layers of each stage that keep only their input and are computed again; at most all."""
    attention_again: bool = False
    """Whether attention of all layers is computed again, and keeps no pairs until then."""
    plain_norms: int = 0
    """How many times its input a norm keeps beside what a fused one does."""
    probabilities: int = 0
    """Bytes of a pair that attention has for each head: 0 where it is fused."""

    @property
    def unit_of(self) -> NDArray[np.int64]:
        """Which of the different units each unit is like; units of -1 come last."""
        return self._units.numbers

    @cached_property
    def units(self) -> list[UnitTokens]:
        """The different units, with all rows; those of -1 come last."""
        return self.units_of(self.workload)

    def units_of(self, work: Workload) -> list[UnitTokens]:
        """The same of layers that may see other tokens."""
        whole = self.workload
        if work is not whole and work.lengths is whole.lengths and not whole.windowed.any():
            return self.units
        rows = self.rows
        held = work.layer_bytes("input") // work.model.boundary_bytes
        found: list[UnitTokens] = []
        for first in self._units.first:
            tokens, doubled = int(work.attended_tokens[first]), int(work.mean_half_pairs[first])
            every = int(work.half_pairs[first])  # with those that a window hides
            keys = (every / tokens + tokens) / 2 if tokens else 0.0
            inside = (rows * int(work.tokens[first]), rows * tokens)
            pairs = (rows * (doubled / 2), rows * (tokens * keys))
            found.append(UnitTokens(rows * int(held[first]), *inside, *pairs, rows))
        return found

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        held = np.array(self.workload.bytes(schedule, size)) * self.rows
        change = CHANGED_BYTES.get(size)
        if change and (self.again or self.probabilities or self.plain_norms):
            held += change(self._layers, schedule, self._pair_bytes) * self.rows
        return Scaled(held, Fraction(1))

    @property
    def kinds_of_layers(self) -> list[KindOfLayers]:
        """The layers of each stage by their kind."""
        return self._layers.of_kinds

    @cached_property
    def _layers(self) -> LayersAgain:
        return LayersAgain(self.workload, self.again, self.attention_again, self.plain_norms)

    def _pair_bytes(self, work: Workload) -> NDArray[np.int64]:
        """Bytes of the pairs of each unit in attention of one layer of a kind."""
        heads = self.workload.attended.heads * self.probabilities
        units = self.units if work is self.workload else self.units_of(work)
        each = np.array([int(unit.square) // self.rows * heads for unit in units], np.int64)
        return each[self.unit_of]
