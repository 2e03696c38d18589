"""The cost model of a layout whose slices hold documents of any lengths.

It is that of an estimate (estimate/layout_cost.py); only what is counted differs: the pairs of a
query and a key are those inside documents, and where the ranks of a device form groups, an op takes
as long as the slowest group. A group of d ranks is a device of d sequence ranks, of which there are
more replicas.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from penstock.core.schedule import Schedule
from penstock.cost.alike_rows import AlikeUnits, single_units
from penstock.cost.cell_sums import RowSeconds
from penstock.cost.cell_workload import CellWorkload
from penstock.cost.passes import Counts
from penstock.estimate.layout import BYTES_OF, TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.policies.arranged import (
    ArrangedStep,
    GroupDocuments,
    doubled_pairs,
    tokens_of,
)
from penstock.estimate.price import workload_cost


@dataclass(frozen=True)
class DocumentWorkload(CellWorkload):
    """The part of a rank where slices hold several documents."""

    pairs: tuple[tuple[int, ...], ...] = ()
    """Twice the query-key pairs of each slice of each microbatch."""

    @cached_property
    def half_pairs(self) -> Counts:
        """A ring deals tokens so that all its ranks have as many pairs."""
        each = [count for slices in self.pairs for count in slices]
        return np.array([*each, 0], np.int64) // self.cell.ring


@dataclass(frozen=True, kw_only=True)
class DocumentCost(LayoutCost):
    """The cost model of one rank."""

    @classmethod
    def like(cls, cost: LayoutCost) -> Self:
        values = {field.name: getattr(cost, field.name) for field in fields(LayoutCost)}
        return cls(**{**values, "known": {}, "origin": None})

    @cached_property
    def _units(self) -> AlikeUnits:
        """Slices of as many tokens have different documents."""
        return single_units(self.workload.lengths)


class GroupSeconds(NamedTuple):
    """What one group of each microbatch takes."""

    name: tuple[int, int]
    """Ranks of the group, and its number among those of this size."""
    cost: DocumentCost
    there: NDArray[np.bool_]
    """Microbatches that have the group; what has no microbatch comes last."""


@dataclass(frozen=True, kw_only=True)
class GroupedCost(DocumentCost):
    """The same where ranks of a device form groups."""

    groups: tuple[GroupSeconds, ...] = ()

    def _seconds(self, schedule: Schedule) -> RowSeconds:
        found = np.zeros(len(schedule.table))
        for _, cost, there in self.groups:
            found = np.maximum(found, cost._seconds(schedule) * there[schedule.unit])
        return found


def cost_of_step(layout: TrainingLayout, schedule: Schedule, step: ArrangedStep) -> DocumentCost:
    """The cost of a step whose whole schedule is this."""
    if not step.groups:
        return _document_cost(layout, schedule, step.lengths, step.pairs)
    cell = layout.mesh.sequence
    lengths = tuple((cell * tokens,) for tokens in step.fullest)
    base = GroupedCost.like(_document_cost(layout, schedule, lengths, step.pairs))
    return replace(base, groups=tuple(_group_seconds(layout, schedule, step.groups)))


def _group_seconds(
    layout: TrainingLayout,
    schedule: Schedule,
    microbatches: Sequence[Sequence[GroupDocuments]],
) -> list[GroupSeconds]:
    """The first groups of a size of all microbatches, then the second ones, and so on."""
    found = []
    for degree in sorted({group.degree for groups in microbatches for group in groups}):
        columns = [[each for each in groups if each.degree == degree] for groups in microbatches]
        for number in range(max(map(len, columns))):
            some = [each[number] if number < len(each) else None for each in columns]
            cost, there = _column(_divided(layout, degree), schedule, some)
            found.append(GroupSeconds((degree, number), cost, there))
    return found


def _column(
    layout: TrainingLayout, schedule: Schedule, groups: Sequence[GroupDocuments | None]
) -> tuple[DocumentCost, NDArray[np.bool_]]:
    """The cost of one group of each microbatch, and which of them have it."""
    documents = [each.documents if each else ((0, 1),) for each in groups]
    lengths = tuple((tokens_of(each),) for each in documents)
    pairs = tuple((doubled_pairs(each),) for each in documents)
    there = np.array([*(each is not None for each in groups), True])
    return _document_cost(layout, schedule, lengths, pairs), there


def _divided(layout: TrainingLayout, degree: int) -> TrainingLayout:
    """The layout in which a device has so many sequence ranks, and the others are replicas."""
    mesh, more = layout.mesh, layout.mesh.sequence // degree
    divided = replace(mesh, sequence=degree, replicas=mesh.replicas * more)
    return replace(layout, mesh=divided, batch_tokens=layout.batch_tokens * more)


def _document_cost(
    layout: TrainingLayout,
    schedule: Schedule,
    lengths: tuple[tuple[int, ...], ...],
    pairs: tuple[tuple[int, ...], ...],
) -> DocumentCost:
    model = replace(layout.model, element_bytes=BYTES_OF[layout.precision])
    workload = DocumentWorkload(model, lengths, layout.layers, pairs=pairs)
    sliced = max(map(len, lengths)) > 1
    return DocumentCost.like(workload_cost(layout, schedule, workload, sliced=sliced))
