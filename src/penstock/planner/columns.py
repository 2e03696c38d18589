"""What both bounds of a division need: one microbatch by slices, as columns over its schedules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.layer_sorts import Floats
from penstock.planner.cell_pieces import CellPieces, OfPiece
from penstock.planner.divisions import Division
from penstock.planner.entries import FACTS, Entries
from penstock.planner.problem import PlanProblem
from penstock.planner.variants import PlanVariant

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class DivisionColumns:
    """The schedules of a division. Arrays have a row for each of them, and a column for each of the
    devices that are looked at, or one."""

    problem: PlanProblem
    division: Division
    entries: Entries
    pieces: CellPieces
    known: dict[OfPiece, list[Floats]] = field(default_factory=dict)
    """What all variants ask for."""

    def of_pieces(self, found: OfPiece) -> list[Floats]:
        """Numbers of a microbatch, for each schedule with its slices, column by column; or arrays
        over sorts of layers, which are the last axis then. They are the same for all variants."""
        if found not in self.known:
            table = self.pieces.table(found, self._counts)
            self.known[found] = [*table[self._number_of_count].swapaxes(0, 1)[:, :, None]]
        return self.known[found]

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        return tuple(sorted({*self.entries.slices.tolist()}))

    @cached_property
    def _number_of_count(self) -> NDArray[np.int64]:
        """Of the slices of each schedule."""
        return np.searchsorted(self._counts, self.entries.slices)

    @cached_property
    def stages(self) -> Floats:
        """Of each device."""
        return self.entries.stages[:, None].astype(np.float64)

    @cached_property
    def slices(self) -> Floats:
        return self.entries.slices[:, None].astype(np.float64)

    @cached_property
    def facts(self) -> Mapping[str, Flags]:
        """What kinds of work schedules have."""
        return {name: self.entries.column(name)[:, None] for name in FACTS}

    def spread(self, variant: PlanVariant) -> Flags:
        """Whether all devices have a part of the vocabulary."""
        return self.facts["shards"] | variant.vocabulary

    @cached_property
    def layer_elements(self) -> Floats:
        """Parameters of a layer of each sort that a rank has, and trains."""
        work = self.pieces(1).cost.workload
        return np.array([float(sum(work.elements(stage))) for stage in self._layer_stages])

    @cached_property
    def least_elements(self) -> Floats:
        """Parameters that a rank trains of the smallest stage, for each schedule."""
        return self.entries.of_smallest(self.layer_elements)[:, 0]

    @cached_property
    def different_least(self) -> tuple[Floats, NDArray[np.int64]]:
        """Those that differ, and for each schedule which of them it has."""
        return np.unique(self.least_elements, return_inverse=True)

    @cached_property
    def layer_frozen(self) -> Floats:
        """Those that it has, and does not train."""
        work = self.pieces(1).cost.workload
        return np.array([float(work.frozen(stage)) for stage in self._layer_stages])

    @property
    def _layer_stages(self) -> list[int]:
        """Stages of a piece with a layer of each sort alone."""
        return [1 + layer for layer in self.problem.sorts.shown_by]

    def owners(self, variant: PlanVariant) -> int:
        """Ranks that share the optimizer's state of a stage."""
        return 1 if variant.shard == "none" else self.division.copies
