"""The cost model of a layout on a cluster: the simulator's questions, answered with kernels' times.

It is the cost model of a rank of a cell (cost/cell_cost.py), whose work, collectives and sizes it
takes; times come from kernels and from formulas of collectives instead of peaks. In addition it
knows several sequences side by side, layers that are computed again, and the optimizer's update.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.arch.mesh_shape import COPY_AXES
from penstock.cluster.collective_times import GroupLinks
from penstock.core.homes import stage_column
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.schedule import Loan, Schedule
from penstock.core.shape import Shape
from penstock.core.table import LETTERS
from penstock.cost import passes
from penstock.cost.cell_cost import CellCost, KnownSums, RowSeconds
from penstock.cost.collectives import (
    BACKWARD_KINDS,
    CELL_AXES,
    FORWARD_KINDS,
    Collective,
    slice_collectives,
)
from penstock.cost.exchange import Exchange
from penstock.cost.model import SIZES, Link
from penstock.cost.shares import Scaled
from penstock.cost.transformer import PICOSECOND
from penstock.cost.work_amounts import WorkAmounts
from penstock.estimate.cluster_links import ClusterLinks, seconds_of_each
from penstock.estimate.known_sums import collective_seconds, known_sums
from penstock.estimate.layer_times import LayerTimes, UnitTokens, heads_seconds, units_seconds
from penstock.estimate.update_times import UpdateTimes

IN_CELL = {"tensor": "tensor", "ulysses": "sequence", "ring": "sequence"}
"""What communication along an axis of a cell is called."""
UPDATING = "VUA"
"""Kinds that end a step on the GPU: the norm of gradients, and updates."""
KINDS_OF_COMMUNICATION = ("tensor", "sequence", "stages", "copies")


@dataclass(frozen=True, kw_only=True)
class LayoutCost(CellCost):
    """The cost model of one rank."""

    links: ClusterLinks
    times: LayerTimes
    update: UpdateTimes
    kinds: frozenset[str]
    """Kinds of ops of its schedule."""
    rows: int = 1
    """Sequences side by side."""
    again: int = 0
    """Layers of each stage that keep only their input and are computed again; at most all."""
    probabilities: int = 0
    """Bytes of a pair that attention keeps for each head: 0 where a kernel keeps none."""
    free: frozenset[str] = frozenset()
    """Kinds of communication that take no time, to see what the others cost."""
    known: dict[str, tuple[Schedule, RowSeconds]] = field(default_factory=dict, compare=False)
    """Seconds of rows that do not depend on what is free, worked out once."""

    def _seconds(self, schedule: Schedule) -> RowSeconds:
        found = self.computing(schedule).copy()
        for kind in {"tensor", "sequence"} - self.free:
            if self.uses(kind):
                found += self._exposed_in(kind, schedule)
        if "copies" not in self.free:
            found += self._once("copies", schedule, lambda: self.between_copies(schedule).total)
        return found

    def _exposed_in(self, kind: str, schedule: Schedule) -> RowSeconds:
        """What ops wait for ranks of their cell in one way, the other one being free."""
        other = {"tensor": "sequence", "sequence": "tensor"}[kind]
        alone = replace(self, free=frozenset({other}))
        return self._once(kind, schedule, lambda: alone.inside(schedule).exposed)

    def _once(self, name: str, schedule: Schedule, found: Callable[[], RowSeconds]) -> RowSeconds:
        """What was found for the schedule that was asked for last."""
        kept = self.known.get(name)
        if kept is None or kept[0] is not schedule:
            kept = self.known[name] = (schedule, found())
        return kept[1]

    def without_boundaries(self) -> "LayoutCost":
        return replace(self, free=self.free | {"stages"})

    def uses(self, kind: str) -> bool:
        """Whether ranks communicate in a way."""
        sizes = {
            "tensor": self.share.cell.tensor,
            "sequence": self.share.cell.sequence,
            "stages": self.links.devices,
            "copies": self.copies.count,
        }
        return sizes[kind] > 1

    def computing(self, schedule: Schedule) -> RowSeconds:
        return self._once("computing", schedule, lambda: self._computed(schedule))

    def _computed(self, schedule: Schedule) -> RowSeconds:
        table = schedule.table
        number, unit = self._like_numbers[stage_column(schedule)], self.unit_of[schedule.unit]
        found = np.zeros(len(table))
        for kind in table.kinds:
            rows = np.flatnonzero(table.of_kinds(kind))
            if kind in UPDATING:
                found[rows] = self._updates(kind)[table.stage[rows]]
            elif kind not in STAGE_KINDS:
                found[rows] = self._of_kind(kind)[number[rows], unit[rows]] + self.times.between
        return found

    def _updates(self, kind: str) -> RowSeconds:
        """Seconds of the end of a step on each stage, and behind them on each shard."""
        seconds, shape = self.update.seconds, self.update.shape
        stages = np.array([seconds(kind, stage) for stage in self._like_stages.tolist()])
        return np.append(stages[self._like_numbers], [seconds(kind, shape.stages)] * shape.shards)

    def _of_kind(self, kind: str) -> NDArray[np.float64]:
        """Seconds of ops of a kind, by stages that are alike and by unit."""
        at, work, chosen = LETTERS.index(kind), self._rates, self._like_stages
        every = np.array(self.workload.layers, np.int64)
        rest = work.linear[at] - passes.layer_products(self.workload.part)[at] * every
        moved = work.lookup[at] / self.times.lookup_rate(kind) + work.copy[at] / self.hardware.host
        layers, units = every[chosen], tuple(self.units)
        again = np.minimum(layers, self.again) * (kind in BACKWARD_KINDS)
        seconds = units_seconds(self.times, units)
        found = np.outer(layers, [each.of_kind(kind) for each in seconds])
        found += np.outer(again, [each.forward for each in seconds])
        found += np.outer(moved[chosen], [each.whole for each in units])
        for number in np.flatnonzero(rest[chosen]).tolist():
            found[number] += heads_seconds(self.times, units, float(rest[chosen[number]]), kind)
        return found

    @cached_property
    def _rates(self) -> WorkAmounts:
        return self.workload.rates(self.update.shape)

    @property
    def sized(self) -> tuple[str, ...]:
        """Sizes that a schedule with these kinds of ops has."""
        shards, cut = bool(self.update.shape.shards), bool(self.workload.cut.any())
        there = {"stash": "W" in self.kinds, "ckpt": "N" in self.kinds, "dkv": cut}
        there |= {"logits": shards, "given": shards}
        return tuple(size for size in SIZES if there.get(size, True))

    @cached_property
    def unit_of(self) -> NDArray[np.int64]:
        """Which of the different units each unit is like; units of -1 come last."""
        return self._unique[1]

    @cached_property
    def units(self) -> list[UnitTokens]:
        """The different units, with all rows."""
        work, rows = self.workload, self.rows
        held = work.layer_bytes("input") // work.model.boundary_bytes
        found: list[UnitTokens] = []
        for first in self._unique[0].tolist():
            whole, doubled = int(work.tokens[first]), int(work.mean_half_pairs[first])
            keys = (doubled / whole + whole) / 2 if whole else 0.0
            sizes = (int(held[first]), whole, doubled / 2, whole * keys)
            found.append(UnitTokens(*(rows * size for size in sizes)))  # type: ignore[arg-type]
        return found

    @cached_property
    def _unique(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        _, first, which = np.unique(self._alike, return_index=True, return_inverse=True)
        return first, which

    def _collectives(self, op: Op) -> list[Collective]:
        """Layers that are computed again send what their forward sends."""
        found = super()._collectives(op)
        again = min(self.again, self.workload.layers[op.stage])
        if again and op.kind in BACKWARD_KINDS:
            slice = slice_collectives(self.share, self.workload.lengths[op.mb][: op.slice + 1])
            found = [*found, *(each._replace(times=again) for each in slice.forward_of_layer)]
        return [each for each in found if IN_CELL[each.axis] not in self.free]

    @cached_property
    def _known(self) -> KnownSums:
        groups = tuple(self.links.group(axis) for axis in CELL_AXES)
        counts = (self.rows, self.again)
        return known_sums(
            self.share, self.hardware, groups, counts, self.free & {*IN_CELL.values()}
        )

    def seconds(self, collective: Collective) -> float:
        group, calls = self.links.group(collective.axis), collective.calls
        each = float(collective.sent) * self.rows / calls
        return calls * collective_seconds(group, collective.name, each)

    def hidden(self, collective: Collective) -> float:
        return self.rows * super().hidden(collective)

    def copies_seconds(
        self, schedule: Schedule, copies: RowSeconds, holders: RowSeconds
    ) -> RowSeconds:
        """A sum for all where copies share nothing, else scattered sums and gathers."""
        among, tensor = self.links.group(*COPY_AXES), self.links.group("tensor")
        times = among.sum_seconds if self.copies.shard == "none" else among.ring_seconds
        return seconds_of_each(times, copies) + seconds_of_each(tensor.sum_seconds, holders)

    def link(self, source: int, target: int) -> Link:
        """A schedule for this cost has boundaries of one byte: all tokens of a microbatch."""
        near = self.links.neighbours(source, target)
        return Link() if "stages" in self.free else self._links[near]

    def loan(self, op: Op, shape: Shape) -> Fraction:
        key = (op.kind, op.slice, self._like_numbers[op.stage], self.workload.lengths[op.mb])
        if key not in self._lent:
            self._lent[key] = self.rows * super().loan(op, shape)
        return self._lent[key]

    def exchange(self, loan: Loan, shape: Shape) -> Exchange:
        """In boundaries of a microbatch, which is what links count here."""
        op = loan.heavy
        like, lengths = self._like_numbers[op.stage], self.workload.lengths[op.mb]
        key = (op.kind, op.slice, like, lengths, loan.slices)
        if key not in self._exchanged:
            moved = super().exchange(loan, shape)
            whole = self.workload.boundary_bytes(max(map(sum, set(self.workload.lengths))))
            there, back = Fraction(moved.there) / whole, Fraction(moved.back) / whole
            self._exchanged[key] = Exchange(there, back)
        return self._exchanged[key]

    @cached_property
    def _lent(self) -> dict[tuple[object, ...], Fraction]:
        """Loans of ops of stages and slices that are alike are alike."""
        return {}

    @cached_property
    def _exchanged(self) -> dict[tuple[object, ...], Exchange]:
        return {}

    @cached_property
    def _links(self) -> tuple[Link, Link]:
        """Between machines, and in one."""
        whole = max(map(sum, set(self.workload.lengths)))
        sent = self.rows * self.workload.boundary_bytes(whole)
        groups = (GroupLinks(self.links.cluster, 2, near) for near in (1, 2))
        far, near = (
            Link(_picoseconds(group.message_seconds(0.0)), _picoseconds(sent / group.rate))
            for group in groups
        )
        return far, near

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


def _picoseconds(seconds: float) -> Fraction:
    return round(seconds / float(PICOSECOND)) * PICOSECOND
