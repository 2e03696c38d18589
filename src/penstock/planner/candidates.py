"""All candidates of a problem with their bounds, as columns."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.host_room import room_on_host
from penstock.estimate.layout import Recompute, TrainingLayout
from penstock.planner.bounding import (
    BoundColumns,
    BoundDivisions,
    DivisionBounds,
    SharedPieces,
    cell_of,
)
from penstock.planner.divisions import Division, Kind, divisions
from penstock.planner.entries import Entries, ScheduleEntry
from penstock.planner.known_entries import share_entries
from penstock.planner.problem import PlanProblem
from penstock.planner.processes import PlanProcesses
from penstock.planner.variants import PlanVariant

Bounded = Callable[[int], None]


class CandidateGroup(NamedTuple):
    """Candidates that differ in their schedule alone."""

    division: Division
    variant: PlanVariant

    @property
    def made_alike(self) -> Hashable:
        """What groups have in common whose schedules of one order are made alike."""
        division, variant = self
        alone = division.copies * division.mesh.tensor == 1
        return division.pipeline, division.microbatches, alone, variant.made_alike


@dataclass(frozen=True)
class Candidates:
    """Every candidate by number; the columns are those of `BoundColumns`."""

    problem: PlanProblem
    groups: tuple[CandidateGroup, ...]
    pieces: SharedPieces
    seconds: NDArray[np.float64]
    likely: NDArray[np.float64]
    bytes: NDArray[np.float64]
    host: NDArray[np.float64]
    entry: NDArray[np.int64]
    record: NDArray[np.int64]
    order: NDArray[np.int64]
    group: NDArray[np.int64]

    @property
    def lacks(self) -> NDArray[np.float64]:
        """Bytes that bounds say a GPU and a host have too few, together."""
        cluster = self.problem.cluster
        of_gpu = np.maximum(self.bytes - cluster.gpu.memory, 0)
        return np.asarray(of_gpu + np.maximum(self.host - room_on_host(cluster), 0))

    @cached_property
    def extras(self) -> NDArray[np.int64]:
        """How many choices of each group are not the plainest."""
        known = {variant: variant.extras for variant in {each.variant for each in self.groups}}
        return np.array([known[group.variant] for group in self.groups], np.int64)

    @cached_property
    def sort(self) -> NDArray[np.int64]:
        """A number for each candidate that those of one record have in common, with the same that
        is moved, spread, and shared: what a bound does not know of them is alike."""
        flags = [(v.offload != "none", v.vocabulary, v.shard == "full") for _, v in self.groups]
        bits = np.array(flags, np.int64).reshape(-1, 3) @ np.array([1, 2, 4])
        return np.asarray(self.record * 8 + bits[self.group], np.int64)

    @cached_property
    def schedule(self) -> NDArray[np.int64]:
        """A number that candidates have in common whose schedules are the same but for the lengths
        of slices: what is made for one of them serves all."""
        known: dict[Hashable, int] = {}
        made = [known.setdefault(each.made_alike, len(known)) for each in self.groups]
        return np.asarray(self.order * max(len(known), 1) + np.array(made, np.int64)[self.group])

    @cached_property
    def kinds(self) -> list[Kind]:
        """All kinds."""
        return [*dict.fromkeys(group.division.kind for group in self.groups)]

    @cached_property
    def kind_of_group(self) -> NDArray[np.int64]:
        """The number of each group's kind."""
        number = {kind: at for at, kind in enumerate(self.kinds)}
        return np.array([number[group.division.kind] for group in self.groups], np.int64)

    def kind_number(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the kind of each of some candidates."""
        return self.kind_of_group[self.group[numbers]]

    def __len__(self) -> int:
        return len(self.seconds)

    def kind(self, number: int) -> Kind:
        """The kind of a candidate."""
        return self.groups[int(self.group[number])].division.kind

    def entries(self, group: int) -> Entries:
        """The schedules of a group."""
        return self.pieces.entries(self.groups[group].division)

    def layout(self, number: int) -> TrainingLayout:
        """The layout of a candidate."""
        group = int(self.group[number])
        entry = self.entries(group).entries[self.entry[number]]
        return candidate_layout(self.problem, *self.groups[group], entry)


def all_candidates(
    problem: PlanProblem,
    progress: Bounded = lambda count: None,
    processes: PlanProcesses | None = None,
) -> Candidates:
    """Bound everything that the problem allows; without processes, here."""
    processes = processes or PlanProcesses(problem)
    every = [*divisions(problem)]
    share_entries(every, processes)
    order = sorted(range(len(every)), key=lambda at: cell_of(every[at]))
    cells = [[*each] for _, each in groupby(order, key=lambda at: cell_of(every[at]))]
    bounds: dict[int, DivisionBounds] = {}
    done = 0
    tasks = [BoundDivisions(tuple(every[at] for at in cell)) for cell in cells]
    for number, found in processes.run(tasks):
        bounds.update(zip(cells[number], found))
        done += sum(len(each.columns.entry) for each in found)
        progress(done)
    return _joined(processes.pieces, every, [bounds[at] for at in range(len(every))])


def _joined(
    pieces: SharedPieces, every: Sequence[Division], bounds: Sequence[DivisionBounds]
) -> Candidates:
    """In the order of the divisions, whoever was done first."""
    groups = tuple(
        CandidateGroup(division, variant)
        for division, found in zip(every, bounds)
        for variant in found.variants
    )
    group = np.repeat(np.arange(len(groups)), [*chain(*(found.counts for found in bounds))])
    columns = BoundColumns.joined([found.columns for found in bounds])
    return Candidates(pieces.problem, groups, pieces, *columns, group)


def candidate_layout(
    problem: PlanProblem, division: Division, variant: PlanVariant, entry: ScheduleEntry
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
