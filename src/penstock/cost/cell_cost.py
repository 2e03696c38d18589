"""Seconds of every op where a device of the schedule is a cell of ranks.

An op takes as long as its rank computes, and as it waits for others: a collective is waited for
where its result is needed, and what the layers compute meanwhile hides it. Times are those of the
rank that computes most; the others of its cell wait for it. Strands of a pair take turns, so that
each hides what the others wait for, as far as its own computing goes.
"""

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from penstock.arch.mesh_shape import COPY_AXES
from penstock.arch.parameters import layers_on_shards
from penstock.core.named_rows import pair_rows
from penstock.core.ops import STAGE_KINDS
from penstock.core.schedule import Schedule
from penstock.core.table import LETTERS
from penstock.cost.busiest_place import busiest_place
from penstock.cost.cell_sums import Axes, CellSums, RowSeconds
from penstock.cost.cell_workload import rank_workload
from penstock.cost.collectives import CELL_AXES
from penstock.cost.copies import Copies, Shard
from penstock.cost.mesh_links import MeshLinks
from penstock.cost.model import Link
from penstock.cost.rank_share import RankShare
from penstock.cost.workload import Workload
from penstock.errors import ShapeError

_STAGE_KINDS = np.array([letter in STAGE_KINDS for letter in LETTERS])


class Communication(NamedTuple):
    """What each row of a schedule's table sends other ranks, and how long that takes."""

    total: RowSeconds
    exposed: RowSeconds
    """What no computing of the same op hides."""
    sent: dict[str, RowSeconds]
    """Bytes by axis."""


@dataclass(frozen=True, kw_only=True)
class CellCost(CellSums):
    """The cost model of a rank: its part of a workload, and what it sends."""

    @classmethod
    def on_mesh(
        cls, workload: Workload, schedule: Schedule, links: MeshLinks, shard: Shard = "none"
    ) -> "CellCost":
        """The cost of the rank that computes most, of a workload of whole devices."""
        refuse_in_cells(schedule, links)
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
        columns = self._of_sorts(schedule)[self.alike(schedule).of_row]
        total, exposed, *sent = columns.T
        self._take_turns(schedule, exposed)
        return Communication(total, exposed, dict(zip(CELL_AXES, sent)))

    def waits(self, schedule: Schedule, timed: Axes = CELL_AXES) -> RowSeconds:
        """What each row waits for other ranks of its cell along some axes, alone."""
        exposed = self._of_sorts(schedule, timed)[:, 1][self.alike(schedule).of_row]
        self._take_turns(schedule, exposed)
        return exposed

    def between_copies(self, schedule: Schedule) -> Communication:
        """What ops of whole stages have to do with ranks that hold the same weights; all of it is
        their time, which the simulation may find to be hidden."""
        sorts, homes = self.alike(schedule), schedule.shape.homes
        columns = np.zeros((3, len(sorts.first)))
        chosen = np.flatnonzero(_STAGE_KINDS[sorts.kind])
        like = np.array([*map(self.copies.like, range(homes))], np.int64)
        key = sorts.kind[chosen] * homes + like[sorts.stage[chosen]]
        different, which = np.unique(key, return_inverse=True)
        each = (divmod(number, homes) for number in different.tolist())
        sent = [self.copies.sent(LETTERS[kind], stage) for kind, stage in each]
        copies, holders = np.array(sent, np.float64).reshape(-1, 2).T
        seconds = self.copies_seconds(schedule, copies, holders)
        columns[:, chosen] = np.stack([seconds, copies, holders])[:, which]
        total, copies, holders = columns[:, sorts.of_row]
        return Communication(total, total, {"copies": copies, "holders": holders})

    def copies_seconds(
        self, schedule: Schedule, copies: RowSeconds, holders: RowSeconds
    ) -> RowSeconds:
        """Of so many bytes that some ops send to copies of their weights, and to tensor ranks that
        hold some of the same parameters."""
        over_copies = copies / self.links.rate(*COPY_AXES)
        return np.asarray(over_copies + holders / self.links.rate("tensor"))

    def link(self, source: int, target: int) -> Link:
        rate = self.links.rate_between(source, target)
        return Link(self.hardware.latency, Fraction(1, rate), self.joined)

    def _take_turns(self, schedule: Schedule, exposed: RowSeconds) -> None:
        """Leave exposed in a pair what the computing of the other strands does not hide."""
        for rows in pair_rows(schedule):
            computing, waits = self.computing(schedule)[rows], exposed[rows]
            others = computing.sum(axis=1, keepdims=True) - computing
            left = np.maximum(waits - others, 0)
            longest = np.arange(rows.shape[1]) == left.argmax(axis=1, keepdims=True)
            exposed[rows] = np.where(longest, left, 0)


class FreeBoundaries(CellCost):
    """The same where nothing takes time between stages."""

    @classmethod
    def like(cls, cost: CellCost) -> "FreeBoundaries":
        return cls(**{field.name: getattr(cost, field.name) for field in fields(cost)})

    def link(self, source: int, target: int) -> Link:
        return Link()


def refuse_in_cells(schedule: Schedule, links: MeshLinks) -> None:
    """Refuse what is not simulated on ranks of a cell."""
    cell = links.mesh.cell
    unpriced = {
        "gangs": (schedule.gangs and cell.ranks > 1, "cells of several ranks"),
        "loans of attention work": (schedule.loans and cell.ring > 1, "a ring of several ranks"),
    }
    for what, (found, where) in unpriced.items():
        if found:
            raise ShapeError(
                f"{schedule.name} has {what}, which are not simulated on {where}",
                hint="leave tensor and sequence of the mesh at 1, or take another schedule",
            )
