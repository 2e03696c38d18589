"""Seconds of every op where a device of the schedule is a cell of ranks.

An op takes as long as its rank computes, and as it waits for others: a collective is waited for
where its result is needed, and what the layers compute meanwhile hides it. Times are those of the
rank that computes most; the others of its cell wait for it. Strands of a pair take turns, so that
each hides what the others wait for, as far as its own computing goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arch.mesh_shape import COPY_AXES
from penstock.arch.parameters import layers_on_shards
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS, Op
from penstock.core.schedule import Schedule
from penstock.cost.busiest_place import busiest_place
from penstock.cost.cell_workload import rank_workload
from penstock.cost.collectives import (
    BACKWARD_KINDS,
    CELL_AXES,
    FORWARD_KINDS,
    Collective,
    op_collectives,
)
from penstock.cost.copies import Copies, Shard
from penstock.cost.cut_collectives import cut_collectives
from penstock.cost.cut_workload import CutWorkload
from penstock.cost.mesh_links import MeshLinks
from penstock.cost.model import Link
from penstock.cost.rank_share import RankShare
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.errors import ShapeError

RowSeconds = NDArray[np.float64]
StageLike = tuple[int, bool, bool]
"""Layers of a stage, and whether it is the first and the last."""
KnownSums = dict[tuple[str, StageLike, tuple[int, ...]], tuple[float, ...]]
"""By kind, stage and slices up to the op's own: seconds and bytes of its collectives."""


class Communication(NamedTuple):
    """What each row of a schedule's table sends other ranks, and how long that takes."""

    total: RowSeconds
    exposed: RowSeconds
    """What no computing of the same op hides."""
    sent: dict[str, RowSeconds]
    """Bytes by axis."""


@dataclass(frozen=True, kw_only=True)
class CellCost(TransformerCost):
    """The cost model of a rank: its part of a workload, and what it sends."""

    share: RankShare
    links: MeshLinks
    copies: Copies

    @classmethod
    def on_mesh(
        cls, workload: Workload, schedule: Schedule, links: MeshLinks, shard: Shard = "none"
    ) -> "CellCost":
        """The cost of the rank that computes most, of a workload of whole devices."""
        _refuse_unpriced(schedule, links)
        place = busiest_place(workload, schedule, links.mesh.cell)
        share = RankShare(workload.model, links.mesh.cell, place)
        return cls(
            rank_workload(workload, links.mesh.cell, place),
            links.hardware,
            share=share,
            links=links,
            copies=Copies(
                share,
                workload.layers,
                links.copies,
                shard=shard,
                on_shards=layers_on_shards(schedule.shape.embed, schedule.shape.loss),
                devices=schedule.shape.devices,
                weightless=schedule.shape.weightless,
            ),
        )

    def without_boundaries(self) -> "CellCost":
        """The same where nothing takes time between stages."""
        return FreeBoundaries.like(self)

    def _seconds(self, schedule: Schedule) -> RowSeconds:
        inside, of_copies = self.inside(schedule), self.between_copies(schedule)
        return self.computing(schedule) + inside.exposed + of_copies.total

    def computing(self, schedule: Schedule) -> RowSeconds:
        """Seconds that each row computes."""
        return super()._seconds(schedule)

    def inside(self, schedule: Schedule) -> Communication:
        """What each row has to do with other ranks of its cell."""
        table = schedule.table
        rows = np.flatnonzero(table.of_kinds(FORWARD_KINDS + BACKWARD_KINDS))
        key = table.kind[rows].astype(np.int64) * len(self.workload.layers)
        key += self._like_numbers[table.stage[rows]]
        key = key * (schedule.shape.units + 1) + self._alike[schedule.unit[rows]]
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        each = np.array([self._of_op(op) for op in table.ops_at(rows[first].tolist())])
        columns = np.zeros((len(table), 2 + len(CELL_AXES)))
        if len(rows):
            columns[rows] = each[which]
        total, exposed, *sent = columns.T
        self._take_turns(schedule, exposed)
        return Communication(total, exposed, dict(zip(CELL_AXES, sent)))

    def between_copies(self, schedule: Schedule) -> Communication:
        """What ops of whole stages have to do with ranks that hold the same weights; all of it is
        their time, which the simulation may find to be hidden."""
        table = schedule.table
        columns = np.zeros((2, len(table)))
        rows, homes = np.flatnonzero(table.of_kinds(STAGE_KINDS)), schedule.shape.homes
        like = np.array([*map(self.copies.like, range(homes))], np.int64)[table.stage[rows]]
        key = table.kind[rows].astype(np.int64) * homes + like
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        if len(rows):
            ops = table.ops_at(rows[first].tolist())
            each = [[*map(float, self.copies.sent(op.kind, op.stage))] for op in ops]
            columns[:, rows] = np.array(each)[which].T
        copies, holders = columns
        total = self.copies_seconds(schedule, copies, holders)
        return Communication(total, total, {"copies": copies, "holders": holders})

    def copies_seconds(
        self, schedule: Schedule, copies: RowSeconds, holders: RowSeconds
    ) -> RowSeconds:
        """Of so many bytes that each row sends to copies of its weights, and to tensor ranks that
        hold some of the same parameters."""
        over_copies = copies / self.links.rate(*COPY_AXES)
        return np.asarray(over_copies + holders / self.links.rate("tensor"))

    def link(self, source: int, target: int) -> Link:
        rate = self.links.rate_between(source, target)
        return Link(self.hardware.latency, Fraction(1, rate))

    def seconds(self, collective: Collective) -> float:
        """Of one time, until the last byte is there."""
        latency = collective.calls * float(self.hardware.latency)
        return float(collective.sent) / self.links.rate(collective.axis) + latency

    def exposed(self, collective: Collective) -> float:
        """What of it is not hidden."""
        return max(0.0, self.seconds(collective) - self.hidden(collective))

    def hidden(self, collective: Collective) -> float:
        """Seconds of what is computed while it runs."""
        beside, rate = collective.beside, self.hardware
        return (
            beside.linear / rate.linear
            + float(beside.attention) / rate.attention
            + float(beside.attention_backward) / rate.attention_backward
        )

    def _of_op(self, op: Op) -> tuple[float, ...]:
        """Seconds in all, seconds exposed, and bytes along each axis."""
        kind = "F" if op.kind in FORWARD_KINDS else op.kind
        key = kind, self._stages_like[op.stage], self.workload.lengths[op.mb][: op.slice + 1]
        if key not in self._known:
            self._known[key] = self._sums(self._collectives(op))
        return self._known[key]

    @cached_property
    def _alike(self) -> NDArray[np.int64]:
        """For each unit the first one of the same slices up to it; units of -1 come last."""
        return _first_alike(self.workload.lengths)

    @cached_property
    def _stages_like(self) -> list[StageLike]:
        """What stages that communicate alike have in common: as many layers, the ends of the model
        apart. Stages of attention alone, and tokens that are left out, make each one
        different."""
        layers, last = self.workload.layers, len(self.workload.layers) - 1
        if self.workload.weightless or self.workload.model.subsampling is not None:
            return [(stage, False, False) for stage in range(len(layers))]
        return [(count, stage == 0, stage == last) for stage, count in enumerate(layers)]

    @cached_property
    def _like_stages(self) -> NDArray[np.int64]:
        """The first stage of each that stands for others."""
        first: dict[StageLike, int] = {}
        for stage, like in enumerate(self._stages_like):
            first.setdefault(like, stage)
        return np.array([*first.values()], np.int64)

    @cached_property
    def _like_numbers(self) -> NDArray[np.int64]:
        """For each stage the number of the one that stands for it."""
        number = {self._stages_like[at]: n for n, at in enumerate(self._like_stages)}
        return np.array([*map(number.__getitem__, self._stages_like)], np.int64)

    def _collectives(self, op: Op) -> list[Collective]:
        if isinstance(self.workload, CutWorkload):
            return cut_collectives(self.workload, self.share, op)
        return op_collectives(self.workload, self.share, op)

    @cached_property
    def _known(self) -> KnownSums:
        """Ops of equal slices of different microbatches are alike."""
        return {}

    def _sums(self, collectives: Sequence[Collective]) -> tuple[float, ...]:
        total = sum(each.times * self.seconds(each) for each in collectives)
        exposed = sum(each.times * self.exposed(each) for each in collectives)
        sent = dict.fromkeys(CELL_AXES, 0.0)
        for each in collectives:
            sent[each.axis] += each.times * float(each.sent)
        return total, exposed, *sent.values()

    def _take_turns(self, schedule: Schedule, exposed: RowSeconds) -> None:
        """Leave exposed in a pair what the computing of the other strands does not hide."""
        for rows in schedule.derive("pairs by length", _pairs_by_length):
            computing, waits = self.computing(schedule)[rows], exposed[rows]
            others = computing.sum(axis=1, keepdims=True) - computing
            left = np.maximum(waits - others, 0)
            longest = np.arange(rows.shape[1]) == left.argmax(axis=1, keepdims=True)
            exposed[rows] = np.where(longest, left, 0)


def _pairs_by_length(schedule: Schedule) -> list[NDArray[np.int64]]:
    """Rows of all pairs that have as many strands, for each such number."""
    rows_of = schedule.table.rows_by_op if schedule.pairs else {}
    found: dict[int, list[list[int]]] = {}
    for pair in schedule.pairs:
        found.setdefault(len(pair), []).append([rows_of[op][0] for op in pair])
    return [np.array(each, np.int64) for each in found.values()]


class FreeBoundaries(CellCost):
    """The same where nothing takes time between stages."""

    @classmethod
    def like(cls, cost: CellCost) -> "FreeBoundaries":
        return cls(**{field.name: getattr(cost, field.name) for field in fields(cost)})

    def link(self, source: int, target: int) -> Link:
        return Link()


@lru_cache(maxsize=64)
def _first_alike(microbatches: tuple[tuple[int, ...], ...]) -> NDArray[np.int64]:
    """The number of each unit among those that differ, and behind them one more."""
    known: dict[tuple[int, ...], int] = {}
    of_lengths: dict[tuple[int, ...], list[int]] = {}
    for lengths in dict.fromkeys(microbatches):
        ends = range(1, len(lengths) + 1)
        of_lengths[lengths] = [known.setdefault(lengths[:end], len(known)) for end in ends]
    each = chain(*(of_lengths[lengths] for lengths in microbatches))
    return np.array([*each, len(known)], np.int64)


def _refuse_unpriced(schedule: Schedule, links: MeshLinks) -> None:
    """Refuse what is not simulated on ranks of a cell."""
    if links.mesh.cell.ranks == 1:
        return
    shards = sorted(schedule.table.kinds & SHARD_KINDS)
    unpriced = {
        f"ops of kind {', '.join(shards)}": shards,
        "gangs": schedule.gangs,
        "loans of attention work": schedule.loans,
    }
    for what, found in unpriced.items():
        if found:
            raise ShapeError(
                f"{schedule.name} has {what}, which are not simulated on cells of several ranks",
                hint="leave tensor and sequence of the mesh at 1, or take another schedule",
            )
