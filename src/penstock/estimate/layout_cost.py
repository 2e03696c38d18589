"""The cost model of a layout on a cluster: the simulator's questions, answered with kernels' times.

It is the cost model of a rank of a cell (cost/cell_cost.py), whose work, collectives and sizes it
takes; times come from kernels and from formulas of collectives instead of peaks. In addition it
knows several sequences side by side, layers that are computed again, and the optimizer's update.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from penstock.arch.mesh_shape import COPY_AXES
from penstock.cluster.collective_times import GroupLinks
from penstock.core.ops import Op
from penstock.core.schedule import Loan, Schedule
from penstock.core.shape import Shape
from penstock.cost.cell_sums import KnownPrices, KnownTables, RowSeconds
from penstock.cost.collectives import (
    BACKWARD_KINDS,
    CELL_AXES,
    Collective,
)
from penstock.cost.copies import Copies
from penstock.cost.exchange import Exchange
from penstock.cost.model import SIZES, Link
from penstock.cost.op_collectives import LAYER_PARTS, RepeatedPart, parts_of_layers
from penstock.cost.transformer import PICOSECOND
from penstock.estimate.cluster_links import seconds_of_each
from penstock.estimate.kept import KeptSums, collective_seconds, kept_sums
from penstock.estimate.op_seconds import SecondsOfOps

IN_CELL = {"tensor": "tensor", "ulysses": "sequence", "ring": "sequence"}
"""What communication along an axis of a cell is called."""
_OF_CELL = ("_units", "_stages_like", "_like_stages", "_like_numbers")
"""What follows from a rank's place in its cell, and from layers and slices."""
KINDS_OF_COMMUNICATION = ("tensor", "sequence", "stages", "copies")


@dataclass(frozen=True, kw_only=True)
class LayoutCost(SecondsOfOps):
    """The cost model of one rank."""

    kinds: frozenset[str]
    """Kinds of ops of its schedule."""
    free: frozenset[str] = frozenset()
    """Kinds of communication that take no time, to see what the others cost."""
    known: dict[str, tuple[Schedule, RowSeconds]] = field(default_factory=dict, compare=False)
    """Seconds of rows that do not depend on what is free, worked out once."""

    def among(self, copies: Copies, owners: int, schedule: Schedule) -> "LayoutCost":
        """The same rank in another schedule, with other copies. What its ops compute and send in a
        cell is worked out once for all of these."""
        update = replace(self.update, shape=schedule.shape, owners=owners)
        kinds, origin = schedule.table.kinds, self._common
        found = replace(self, copies=copies, update=update, kinds=kinds, known={}, origin=origin)
        found.__dict__.update({name: getattr(origin, name) for name in _OF_CELL})
        return found

    def _seconds(self, schedule: Schedule) -> RowSeconds:
        found = self.computing(schedule).copy()
        for kind in ("tensor", "sequence"):  # sums of floats depend on their order
            if kind not in self.free and self.uses(kind):
                found += self._exposed_in(kind, schedule)
        if "copies" not in self.free:
            found += self._once("copies", schedule, lambda: self._copied(schedule))
        return found

    def _exposed_in(self, kind: str, schedule: Schedule) -> RowSeconds:
        """What ops wait for ranks of their cell in one way, the other one being free."""
        axes = tuple(axis for axis in CELL_AXES if IN_CELL[axis] == kind)
        return self._once(kind, schedule, lambda: self.waits(schedule, axes))

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

    @property
    def sized(self) -> tuple[str, ...]:
        """Sizes that a schedule with these kinds of ops has."""
        shards, cut = bool(self.update.shape.shards), bool(self.workload.cut.any())
        there = {"stash": "W" in self.kinds, "ckpt": "N" in self.kinds, "dkv": cut}
        there |= {"logits": shards, "given": shards}
        return tuple(size for size in SIZES if there.get(size, True))

    def _parts(self, kind: str, stage: int) -> list[RepeatedPart]:
        """Layers that are computed again send what their forward sends."""
        found = super()._parts(kind, stage)
        if self.again and kind in BACKWARD_KINDS:
            again = self.workload.split[stage][: self.again]
            found += parts_of_layers(self.share, again, LAYER_PARTS["F"])
        return found

    @cached_property
    def _kept_sums(self) -> KeptSums:
        if self.workload.weightless:  # stages are numbered in another way
            return KeptSums({}, {})
        groups = tuple(self.links.group(axis) for axis in CELL_AXES)
        counts = (self.rows, self.again)
        also = self.copies.on_shards, self._units.lengths
        return kept_sums(self.share, self.hardware, groups, counts, *also)

    @property
    def _tables(self) -> KnownTables:
        return self._kept_sums.of_stages

    @property
    def _prices(self) -> KnownPrices:
        return self._kept_sums.of_parts

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
        """A schedule for this cost has boundaries of one byte: all tokens of a microbatch, or a
        part of them (`boundary_parts`)."""
        near = self.links.neighbours(source, target)
        return Link() if "stages" in self.free else self._common._links[near]

    def loan(self, op: Op, shape: Shape) -> Fraction:
        known = self._common._lent
        key = (op.kind, op.slice, self._like_stage(op.stage), self.workload.lengths[op.mb])
        if key not in known:
            known[key] = self.rows * super().loan(op, shape)
        return known[key]

    def exchange(self, loan: Loan, shape: Shape) -> Exchange:
        """In boundaries of a microbatch, which is what links count here."""
        op, known = loan.heavy, self._common._exchanged
        like, lengths = self._like_stage(op.stage), self.workload.lengths[op.mb]
        key = (op.kind, op.slice, like, lengths, loan.slices)
        if key not in known:
            moved = super().exchange(loan, shape)
            whole = self.workload.boundary_bytes(max(map(sum, set(self.workload.lengths))))
            there, back = Fraction(moved.there) / whole, Fraction(moved.back) / whole
            known[key] = Exchange(there, back)
        return known[key]

    @property
    def _like_stage(self) -> Callable[[int], int]:
        """The number of what a stage is like, which is looked at for each of many loans."""
        return self._common._numbers_of_stages.__getitem__

    @cached_property
    def _numbers_of_stages(self) -> list[int]:
        found: list[int] = self._like_numbers.tolist()
        return found

    @cached_property
    def _lent(self) -> dict[tuple[object, ...], Fraction]:
        """Loans of ops of stages and slices that are alike are alike, among whatever copies."""
        return {}

    @cached_property
    def _exchanged(self) -> dict[tuple[object, ...], Exchange]:
        return {}

    @cached_property
    def _links(self) -> tuple[Link, Link]:
        """Between machines, and in one."""
        whole = max(map(sum, set(self.workload.lengths)))
        sent = self.rows * self.workload.boundary_bytes(whole) / self.workload.boundary_parts
        groups = (GroupLinks(self.links.cluster, 2, near) for near in (1, 2))
        far, near = (
            Link(
                _picoseconds(group.message_seconds(0.0)),
                _picoseconds(sent / group.rate),
                self.joined,
            )
            for group in groups
        )
        return far, near


def _picoseconds(seconds: float) -> Fraction:
    return round(seconds / float(PICOSECOND)) * PICOSECOND
