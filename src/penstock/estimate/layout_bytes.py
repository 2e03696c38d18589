"""Bytes that the ops of a layout hold: those of a rank, with rows side by side and layers that are
computed again."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.core.homes import stage_column
from penstock.core.schedule import Schedule
from penstock.cost.cell_cost import CellCost
from penstock.cost.collectives import BACKWARD_KINDS, FORWARD_KINDS
from penstock.cost.shares import Scaled
from penstock.estimate.layer_times import UnitTokens


@dataclass(frozen=True, kw_only=True)
class LayoutBytes(CellCost):
    """The sizes of one rank's buffers."""

    rows: int = 1
    """Sequences side by side."""
    again: int = 0
    """Layers of each stage that keep only their input and are computed again; at most all."""
    probabilities: int = 0
    """Bytes of a pair that attention keeps for each head: 0 where a kernel keeps none."""

    @property
    def unit_of(self) -> NDArray[np.int64]:
        """Which of the different units each unit is like; units of -1 come last."""
        return self._units.numbers

    @cached_property
    def units(self) -> list[UnitTokens]:
        """The different units, with all rows; those of -1 come last."""
        work, rows = self.workload, self.rows
        held = work.layer_bytes("input") // work.model.boundary_bytes
        found: list[UnitTokens] = []
        for first in self._units.first:
            whole, doubled = int(work.tokens[first]), int(work.mean_half_pairs[first])
            keys = (doubled / whole + whole) / 2 if whole else 0.0
            sizes = (int(held[first]), whole, doubled / 2, whole * keys)
            found.append(UnitTokens(*(rows * size for size in sizes)))  # type: ignore[arg-type]
        return found

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        held = np.array(self.workload.bytes(schedule, size)) * self.rows
        change = {"act": self._kept, "kv": self._keys, "temp": self._while_running}.get(size)
        if change and (self.again or self.probabilities):
            held += change(schedule) * self.rows
        return Scaled(held, Fraction(1))

    def _kept(self, schedule: Schedule) -> NDArray[np.int64]:
        """What layers that are computed again do not keep, and what attention keeps of pairs."""
        again, layers = self._again(schedule)
        layer, given = (self.workload.layer_bytes(size)[schedule.unit] for size in ("act", "input"))
        return np.asarray(
            (layers - again) * self._pair_bytes[schedule.unit] - again * (layer - given)
        )

    def _keys(self, schedule: Schedule) -> NDArray[np.int64]:
        """Keys and values of whole sequences, which no other slice needs, are made again too."""
        again, _ = self._again(schedule)
        whole = self.workload.layer_bytes("kv") * (1 - self.workload.cut)
        return np.asarray(-again * whole[schedule.unit])

    def _while_running(self, schedule: Schedule) -> NDArray[np.int64]:
        """One layer that is computed again, and gradients of its pairs."""
        again, _ = self._again(schedule)
        whole = self.workload.layer_bytes("kv") * (1 - self.workload.cut)
        layer = self.workload.layer_bytes("act") + whole + self._pair_bytes
        backward = schedule.table.of_kinds(BACKWARD_KINDS)
        both = schedule.table.of_kinds(BACKWARD_KINDS + FORWARD_KINDS)
        found = (again > 0) * layer[schedule.unit] * backward
        return np.asarray(found + self._pair_bytes[schedule.unit] * both)

    def _again(self, schedule: Schedule) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Layers of each row that are computed again, and all of its stage."""
        every = np.zeros(schedule.shape.homes, np.int64)
        every[: len(self.workload.layers)] = self.workload.layers
        layers = every[stage_column(schedule)]
        return np.minimum(layers, self.again), layers

    @cached_property
    def _pair_bytes(self) -> NDArray[np.int64]:
        """Bytes that attention of one layer keeps for the pairs of each unit."""
        heads = self.workload.attended.heads * self.probabilities
        each = np.array([int(unit.square) // self.rows * heads for unit in self.units], np.int64)
        return each[self.unit_of]
