"""Bounds of all schedules of a division, with each of the other choices.

Divisions have much in common: schedules of as many devices and microbatches, and microbatches on
cells that are alike. That is worked out once, so divisions of one cell are bounded together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.layer_sorts import Floats
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.step_schedule import slice_lengths
from penstock.planner.cell_pieces import CellPieces
from penstock.planner.columns import DivisionColumns
from penstock.planner.divisions import Division
from penstock.planner.entries import Entries, entries_of, slices_of
from penstock.planner.memory_bounds import MemoryBounds
from penstock.planner.piece_times import PieceTimes
from penstock.planner.problem import PlanProblem
from penstock.planner.spreading import spreading_can_pay
from penstock.planner.time_bounds import TimeBounds
from penstock.planner.variants import PlanVariant, variants

MOST_COPIED = 1 << 10
"""Ops of a schedule up to which it is tried with copies or loans: it takes longest to make."""
MOST_SHARED = 1 << 14
"""The same where all devices have a part of the vocabulary, and an op for each slice of others."""


class BoundColumns(NamedTuple):
    """The bounds of some candidates, a row for each of them."""

    seconds: Floats
    """No less than this is what a step takes."""
    likely: Floats
    """The same with what is likely, for the order of the search."""
    bytes: Floats
    """No less than this is what the fullest GPU needs."""
    host: Floats
    """No less than this waits on the fullest host."""
    entry: NDArray[np.int64]
    """The number of the schedule."""
    record: NDArray[np.int64]
    """The number of its record."""
    order: NDArray[np.int64]
    """A number that schedules of one record, as many stages and as many slices have in common."""

    @classmethod
    def joined(cls, parts: Sequence["BoundColumns"]) -> "BoundColumns":
        """All of them, in their order."""
        none = (*(np.zeros(0),) * 4, *(np.zeros(0, np.int64),) * 3)
        return cls(*map(np.concatenate, zip(none, *parts)))


class DivisionBounds(NamedTuple):
    """The bounds of a division, variant after variant, for each schedule that one can have: a few
    long columns are sent to another process in less time than many short ones."""

    variants: tuple[PlanVariant, ...]
    counts: tuple[int, ...]
    """Schedules of each variant."""
    columns: BoundColumns

    @classmethod
    def of(cls, each: Mapping[PlanVariant, BoundColumns]) -> "DivisionBounds":
        counts = tuple(len(columns.entry) for columns in each.values())
        return cls(tuple(each), counts, BoundColumns.joined([*each.values()]))


class WhateverIsShared(NamedTuple):
    """What variants have in common that differ in the state that copies share."""

    chosen: NDArray[np.int64]
    """The schedules that are tried."""
    copied: Floats
    """Seconds that copies to the host are likely to take."""
    host: Floats
    record: NDArray[np.int64]
    order: NDArray[np.int64]


@dataclass
class SharedPieces:
    """What the divisions of a problem have in common."""

    problem: PlanProblem
    known: dict[Any, Any] = field(default_factory=dict)

    def entries(self, division: Division) -> Entries:
        """The schedules of a division."""
        key = self.entries_key(division)
        if key not in self.known:
            self.known[key] = entries_of(self.problem, *key)
        found: Entries = self.known[key]
        return found

    def keep_entries(self, division: Division, entries: Entries) -> None:
        """The same, where another process has listed them."""
        self.known.setdefault(self.entries_key(division), entries)

    def entries_key(self, division: Division) -> tuple[int, int, tuple[int, ...]]:
        """What divisions have in common that may run the same schedules."""
        cut = slices_of(self.problem, division.mesh.sequence)
        return division.pipeline, division.microbatches, cut

    def of(self, division: Division) -> CellPieces:
        """One of its microbatches, cut into so many slices."""
        cell = cell_of(division)
        if cell not in self.known:
            self.known[cell] = CellPieces(partial(self._piece, division))
        found: CellPieces = self.known[cell]
        return found

    def _piece(self, division: Division, slices: int) -> PieceTimes:
        problem = self.problem
        lengths = slice_lengths(problem.model, problem.tokens, slices, division.mesh.sequence)
        layout = TrainingLayout(
            problem.model,
            problem.cluster,
            problem.tokens,
            problem.batch_tokens,
            "",
            division.mesh,
            division.pipeline,
            rows=division.rows,
            **problem.kernels,
        )
        return PieceTimes(layout, lengths)


def cell_of(division: Division) -> tuple[int, ...]:
    """What divisions have in common whose microbatches take as long."""
    mesh = division.mesh
    return (mesh.tensor, mesh.sequence, mesh.ring, division.rows)


@dataclass(frozen=True)
class BoundDivisions:
    """The task to bound some divisions."""

    divisions: tuple[Division, ...]

    def run(self, pieces: SharedPieces) -> list[DivisionBounds]:
        """Of each division the bounds; of none where it has no schedules."""
        return [DivisionBounds.of(_bound(pieces, division)) for division in self.divisions]


def _bound(pieces: SharedPieces, division: Division) -> dict[PlanVariant, BoundColumns]:
    entries, found = pieces.entries(division), dict[PlanVariant, BoundColumns]()
    if not entries.entries:
        return found
    shared = DivisionColumns(pieces.problem, division, entries, pieces.of(division))
    times, sizes = TimeBounds(shared), MemoryBounds(shared)
    kept: dict[PlanVariant, WhateverIsShared] = {}
    for variant in variants(pieces.problem, division):
        key = variant._replace(shard="none")
        if key not in kept:
            chosen = np.flatnonzero(possible_entries(pieces.problem, division, variant, entries))
            most = (times.copied(variant)[chosen], sizes.host_bytes(variant)[chosen])
            columns = (entries.record[chosen], entries.order[chosen])
            kept[key] = WhateverIsShared(chosen, *most, *columns)
        same = kept[key]
        seconds = times.seconds(variant)[same.chosen]
        needed = sizes.bytes(variant)[same.chosen]
        floats = (seconds, np.maximum(seconds, same.copied), needed, same.host)
        found[variant] = BoundColumns(*floats, same.chosen, same.record, same.order)
    return found


def possible_entries(
    problem: PlanProblem, division: Division, variant: PlanVariant, entries: Entries
) -> NDArray[np.bool_]:
    """Whether schedules are tried: bounds know what devices lend each other where a device is one
    rank, and a vocabulary is spread where that can pay, but not twice. Large ones take long to
    make."""
    shards, lends = entries.column("shards"), entries.column("lends")
    spread = shards | variant.vocabulary
    helps = spreading_can_pay(problem, division, variant.offload)
    impossible = shards & (variant.vocabulary or not helps) | lends & (division.in_cell > 1)
    if variant.vocabulary and "layers" not in problem.fixed and problem.sorts.alike:
        impossible |= entries.uneven  # all devices have a part of the head: even is balanced
    alone = problem.model.head_adapters > 0 or problem.model.mixture is not None
    impossible |= spread & alone  # a run has these with a head on the last stage
    large = spread * division.pipeline // 2 * entries.ops > MOST_SHARED
    large |= (lends | (variant.offload != "none")) & (entries.ops > MOST_COPIED)
    return np.asarray(~impossible & ~large)
