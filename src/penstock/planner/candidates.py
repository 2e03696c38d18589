"""All candidates of a problem with their bounds, as columns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.layout import Recompute, TrainingLayout
from penstock.estimate.step_schedule import slice_lengths
from penstock.planner.columns import DivisionColumns
from penstock.planner.divisions import Division, divisions
from penstock.planner.entries import Entries, ScheduleEntry, entries_of, slices_of
from penstock.planner.memory_bounds import MemoryBounds
from penstock.planner.piece_times import PieceTimes
from penstock.planner.problem import PlanProblem
from penstock.planner.time_bounds import TimeBounds
from penstock.planner.variants import PlanVariant, variants

MOST_LOOSE = 1 << 10
"""Ops of a schedule up to which it is tried where bounds say little."""
MOST_SHARED = 1 << 14
"""The same where all devices have a part of the vocabulary, and an op for each slice of others."""
Bounded = Callable[[int], None]
Kind = tuple[int, int, int]
"""Ranks that share matrices, tokens and layers."""
BoundColumns = tuple[
    NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]
]
"""Seconds at least and likely, bytes, and number of the entry."""


class CandidateGroup(NamedTuple):
    """Candidates that differ in their schedule alone."""

    division: Division
    variant: PlanVariant
    entries: Entries


@dataclass(frozen=True)
class Candidates:
    """Every candidate by number."""

    problem: PlanProblem
    groups: tuple[CandidateGroup, ...]
    seconds: NDArray[np.float64]
    """No less than this is what a step takes."""
    likely: NDArray[np.float64]
    """The same with what is likely, for the order of the search."""
    bytes: NDArray[np.float64]
    """No less than this is what the fullest GPU needs."""
    group: NDArray[np.int64]
    entry: NDArray[np.int64]

    @cached_property
    def extras(self) -> NDArray[np.int64]:
        """How many choices of each group are not the plainest."""
        return np.array([group.variant.extras for group in self.groups], np.int64)

    @cached_property
    def loose(self) -> NDArray[np.bool_]:
        """Whether a candidate is of those whose bounds say little."""
        each = [_loose(group.variant, group.entries) for group in self.groups]
        starts = np.cumsum([0, *map(len, each)])
        return np.concatenate([np.zeros(0, np.bool_), *each])[starts[self.group] + self.entry]

    def __len__(self) -> int:
        return len(self.seconds)

    def kind(self, number: int) -> Kind:
        """What plans of one kind have in common: how the model and its tokens are divided."""
        division: Division = self.groups[self.group[number]].division
        return division.kind

    def layout(self, number: int) -> TrainingLayout:
        """The layout of a candidate."""
        group = self.groups[self.group[number]]
        return candidate_layout(
            self.problem, group.division, group.entries.entries[self.entry[number]], group.variant
        )


def all_candidates(problem: PlanProblem, progress: Bounded = lambda count: None) -> Candidates:
    """Bound everything that the problem allows."""
    pieces, groups = _Pieces(problem), []
    columns: list[BoundColumns] = []
    done = 0
    for division in divisions(problem):
        entries = pieces.entries(division)
        if not entries.entries:
            continue
        shared = DivisionColumns(problem, division, entries, pieces.of(division))
        times, sizes = TimeBounds(shared), MemoryBounds(shared)
        for variant in variants(problem, division):
            chosen = np.flatnonzero(_possible(problem, division, variant, entries))
            groups.append(CandidateGroup(division, variant, entries))
            seconds = times.seconds(variant)
            likely, held = np.maximum(seconds, times.copied(variant)), sizes.bytes(variant)
            columns.append((seconds[chosen], likely[chosen], held[chosen], chosen))
            done += len(chosen)
        progress(done)
    return _joined(problem, groups, columns)


def _joined(
    problem: PlanProblem,
    groups: list[CandidateGroup],
    columns: list[BoundColumns],
) -> Candidates:
    none = (np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
    seconds, likely, sizes, entry = map(np.concatenate, zip(none, *columns))
    group = np.repeat(np.arange(len(groups)), [len(each[0]) for each in columns])
    return Candidates(problem, tuple(groups), seconds, likely, sizes, group, entry)


def _possible(
    problem: PlanProblem, division: Division, variant: PlanVariant, entries: Entries
) -> NDArray[np.bool_]:
    """Whether schedules can be priced: what devices lend each other, or share of the vocabulary, is
    not divided once more, and is not there twice. Large ones take long to make."""
    shards, lends = entries.column("shards"), entries.column("lends")
    spread = shards | variant.vocabulary
    impossible = (shards | lends) & (division.in_cell > 1) | shards & variant.vocabulary
    if variant.vocabulary and "layers" not in problem.fixed:
        impossible |= entries.uneven  # all devices have a part of the head: even is balanced
    large = spread * division.pipeline // 2 * entries.ops > MOST_SHARED
    large |= _loose(variant, entries) & (entries.ops > MOST_LOOSE)
    return np.asarray(~impossible & ~large)


def _loose(variant: PlanVariant, entries: Entries) -> NDArray[np.bool_]:
    """Whether schedules copy activations, or lend attention, which their bounds do not know."""
    return entries.column("lends") | (variant.offload != "none")


@dataclass
class _Pieces:
    """What divisions have in common, worked out once: schedules of as many devices and
    microbatches, and microbatches of cells that are alike."""

    problem: PlanProblem
    known: dict[Any, Any] = field(default_factory=dict)

    def entries(self, division: Division) -> Entries:
        cut = slices_of(self.problem, division.mesh.sequence)
        key = (division.pipeline, division.microbatches, cut)
        if key not in self.known:
            self.known[key] = entries_of(self.problem, *key)
        found: Entries = self.known[key]
        return found

    def of(self, division: Division) -> Callable[[int], PieceTimes]:
        mesh = division.mesh
        cell = (mesh.tensor, mesh.sequence, mesh.ring, division.rows)

        def piece(slices: int) -> PieceTimes:
            key = (*cell, slices)
            if key not in self.known:
                self.known[key] = self._piece(division, slices)
            found: PieceTimes = self.known[key]
            return found

        return piece

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


def candidate_layout(
    problem: PlanProblem, division: Division, entry: ScheduleEntry, variant: PlanVariant
) -> TrainingLayout:
    """The layout of a division with a schedule and the other choices."""
    return TrainingLayout(
        problem.model,
        problem.cluster,
        problem.tokens,
        problem.batch_tokens,
        entry.work.spec.name,
        division.mesh,
        division.pipeline,
        entry.chunks,
        entry.slices,
        problem.fixed.get("options", ()),
        division.rows,
        Recompute(variant.recompute),
        variant.shard,  # type: ignore[arg-type]
        vocabulary=variant.vocabulary,
        offload=variant.offload,  # type: ignore[arg-type]
        layers=entry.layers,
        **problem.kernels,
    )
