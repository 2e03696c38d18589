"""The cost model of a layout on a cluster: the simulator's questions, answered with kernels' times.

It is the cost model of a rank of a cell (cost/cell_cost.py), whose work, collectives and sizes it
takes; times come from kernels and from formulas of collectives instead of peaks. In addition it
knows several sequences side by side, layers that are computed again, and the optimizer's update.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from penstock.arch.mesh_shape import COPY_AXES
from penstock.cluster.collective_times import GroupLinks
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.schedule import Loan, Schedule
from penstock.core.shape import Shape
from penstock.core.table import CODE, LETTERS
from penstock.cost.cell_sums import Axes, KnownSeconds, KnownSums, KnownTables, RowSeconds
from penstock.cost.cell_workload import CellWorkload
from penstock.cost.collectives import (
    BACKWARD_KINDS,
    CELL_AXES,
    FORWARD_KINDS,
    Collective,
    RepeatedPart,
    slice_collectives,
)
from penstock.cost.copies import Copies
from penstock.cost.exchange import Exchange
from penstock.cost.kept_workload import KeptWorkload
from penstock.cost.model import SIZES, Link
from penstock.cost.transformer import PICOSECOND
from penstock.cost.work_amounts import WorkAmounts
from penstock.cost.workload import Workload
from penstock.estimate.bracket_times import bracket_seconds
from penstock.estimate.cluster_links import ClusterLinks, seconds_of_each
from penstock.estimate.kept import (
    KeptSeconds,
    KeptSums,
    collective_seconds,
    kept_seconds,
    kept_sums,
)
from penstock.estimate.layer_times import LayerTimes, heads_seconds, units_seconds
from penstock.estimate.layout_bytes import LayoutBytes
from penstock.estimate.op_table import OpTable
from penstock.estimate.update_times import UpdateTimes

IN_CELL = {"tensor": "tensor", "ulysses": "sequence", "ring": "sequence"}
"""What communication along an axis of a cell is called."""
UPDATING = "VUA"
"""Kinds that end a step on the GPU: the norm of gradients, and updates."""
COMMUNICATING = FORWARD_KINDS + BACKWARD_KINDS
"""Kinds whose ranks send to others of their cell."""
_OF_CELL = ("_units", "_stages_like", "_like_stages", "_like_numbers")
"""What follows from a rank's place in its cell, and from layers and slices."""
KINDS_OF_COMMUNICATION = ("tensor", "sequence", "stages", "copies")


@dataclass(frozen=True, kw_only=True)
class LayoutCost(LayoutBytes):
    """The cost model of one rank."""

    links: ClusterLinks
    times: LayerTimes
    update: UpdateTimes
    kinds: frozenset[str]
    """Kinds of ops of its schedule."""
    free: frozenset[str] = frozenset()
    """Kinds of communication that take no time, to see what the others cost."""
    known: dict[str, tuple[Schedule, RowSeconds]] = field(default_factory=dict, compare=False)
    """Seconds of rows that do not depend on what is free, worked out once."""
    origin: "LayoutCost | None" = field(default=None, compare=False, repr=False)
    """The cost model of the same rank among other copies, which has tables of its ops."""

    def among(self, copies: Copies, owners: int, schedule: Schedule) -> "LayoutCost":
        """The same rank in another schedule, with other copies. What its ops compute and send in a
        cell is worked out once for all of these."""
        update = replace(self.update, shape=schedule.shape, owners=owners)
        kinds, origin = schedule.table.kinds, self._common
        found = replace(self, copies=copies, update=update, kinds=kinds, known={}, origin=origin)
        found.__dict__.update({name: getattr(origin, name) for name in _OF_CELL})
        return found

    @property
    def _common(self) -> "LayoutCost":
        return self.origin or self

    @cached_property
    def _op_tables(self) -> dict[tuple[object, ...], OpTable]:
        """What ops take, by what is looked at."""
        return {}

    def _op_table(self, *key: object) -> OpTable:
        """The table of something that layouts of this rank have in common."""
        tables, sizes = self._common._op_tables, (len(self._like_stages), len(self._units.places))
        if key not in tables:
            tables[key] = OpTable(*sizes)
        return tables[key]

    def _of_rows(self, schedule: Schedule, seconds: RowSeconds) -> RowSeconds:
        """What a table has for each row."""
        sorts, last = self.alike(schedule), schedule.shape.stages - 1
        number = self._like_numbers[np.minimum(sorts.stage, last)]
        return np.asarray(seconds[sorts.kind, number, sorts.alike][sorts.of_row])

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

    def _computed(self, schedule: Schedule) -> RowSeconds:
        common, kinds = self._common, schedule.table.kinds
        table = self._op_table("computing").of(kinds - STAGE_KINDS, common._by_stages)
        found = self._of_rows(schedule, table)
        for kind in kinds.intersection(UPDATING):
            rows = np.flatnonzero(schedule.table.kind == CODE[kind])
            found[rows] = self._updates(kind)[schedule.table.stage[rows]]
        return found

    def waits(self, schedule: Schedule, timed: Axes = CELL_AXES) -> RowSeconds:
        common, kinds = self._common, schedule.table.kinds.intersection(COMMUNICATING)
        table = self._op_table("waits", timed).of(kinds, partial(common._exposed_of, timed))
        exposed = self._of_rows(schedule, table)
        self._take_turns(schedule, exposed)
        return exposed

    def _exposed_of(self, timed: Axes, kind: str) -> NDArray[np.float64]:
        """What ops of a kind wait for along some axes, by stages that are alike and by unit."""
        tables = [self._of_stage(kind, stage, timed) for stage in self._like_stages.tolist()]
        return np.array(tables)[:, :, 1]

    def _copied(self, schedule: Schedule) -> RowSeconds:
        """What rows have to do with copies of their weights: the total of `between_copies`."""
        kinds = sorted(schedule.table.kinds & STAGE_KINDS)
        table = np.zeros((len(LETTERS), schedule.shape.homes))
        for kind in kinds:
            table[CODE[kind]] = self._to_copies(kind, schedule)
        sorts = self.alike(schedule)
        return np.asarray(table[sorts.kind, sorts.stage][sorts.of_row])

    def _to_copies(self, kind: str, schedule: Schedule) -> RowSeconds:
        """Seconds of ops of a kind on each stage, and behind them on each shard."""
        known, copies = self._common._copies_known, self.copies
        key = (kind, copies.count, copies.shard)
        if key not in known:
            likes = [*map(copies.like, range(schedule.shape.homes))]
            each = {like: copies.sent(kind, like) for like in dict.fromkeys(likes)}
            sent = np.array([*each.values()], np.float64).T
            seconds = dict(zip(each, self.copies_seconds(schedule, *sent).tolist()))
            known[key] = np.array([*map(seconds.__getitem__, likes)])
        return known[key]

    @cached_property
    def _copies_known(self) -> dict[tuple[str, int, str], RowSeconds]:
        return {}

    def _updates(self, kind: str) -> RowSeconds:
        """Seconds of the end of a step on each stage, and behind them on each shard."""
        known, key = self._common._updates_known, (kind, self.update.owners)
        if key not in known:
            known[key] = self._updates_of(kind)
        return known[key]

    @cached_property
    def _updates_known(self) -> dict[tuple[str, int], RowSeconds]:
        return {}

    def _updates_of(self, kind: str) -> RowSeconds:
        """The same, worked out."""
        shape, stages = self.update.shape, [*self._like_stages.tolist()]
        keys = [(kind, self.update.owners, self._stages_like[stage]) for stage in stages]
        kept = self._common._kept_seconds.of_ends
        if any(key not in kept for key in keys):
            kept.update(zip(keys, [self.update.seconds(kind, stage) for stage in stages]))
        each = np.array([*map(kept.__getitem__, keys)])[self._like_numbers]
        of_shards = [self.update.seconds(kind, shape.stages)] * shape.shards if shape.shards else []
        return np.append(each, of_shards)

    def _by_stages(self, kind: str) -> NDArray[np.float64]:
        """Seconds of ops of a kind, by stages that are alike and by unit; layouts with as many
        layers on a stage have the same."""
        known = self._kept_seconds.of_stages
        keys = [(kind, self._stages_like[stage]) for stage in self._like_stages.tolist()]
        if any(key not in known for key in keys):
            known.update(zip(keys, self._of_kind(kind)))
        return np.array([*map(known.__getitem__, keys)]) + self.times.between

    @cached_property
    def _kept_seconds(self) -> KeptSeconds:
        if type(self.workload) not in (
            Workload,
            CellWorkload,
            KeptWorkload,
        ):  # counted in another way
            return KeptSeconds({}, {})
        shape, counts = self.update.shape, (self.rows, self.again)
        ends = (shape.embed, shape.loss, shape.devices)
        return kept_seconds(self.times, self.share, counts, ends, self._units.lengths)

    def _of_kind(self, kind: str) -> NDArray[np.float64]:
        """The same, worked out."""
        at, work, chosen = LETTERS.index(kind), self._rates, self._like_stages
        rest = np.rint(work.linear[at] - self.workload.layer_products[at])
        moved = work.lookup[at] / self.times.lookup_rate(kind) + work.copy[at] / self.hardware.host
        units, again = tuple(self.units), kind in BACKWARD_KINDS
        found = np.outer(moved[chosen], [each.whole for each in units])
        for own in self.kinds_of_layers:
            seen = tuple(self.units_of(own.workload))
            seconds = units_seconds(own.times(self.times), seen)
            found += np.outer(own.layers[chosen], [each.of_kind(kind) for each in seconds])
            found += np.outer(own.again[chosen] * again, [each.forward for each in seconds])
        for number in np.flatnonzero(rest[chosen]).tolist():
            found[number] += heads_seconds(self.times, units, float(rest[chosen[number]]), kind)
        return found + self._of_brackets(kind)[chosen]

    def _of_brackets(self, kind: str) -> NDArray[np.float64]:
        """The same of brackets, where the model leaves out tokens."""
        work = self.workload
        if not isinstance(work, KeptWorkload):
            return np.zeros((len(work.layers), 1))
        tokens = [int(work.tokens[first]) for first in self._units.first]
        return bracket_seconds(work, kind, tokens, self.rows, self.times.memory_rate)

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

    def _parts(self, op: Op) -> list[RepeatedPart]:
        """Layers that are computed again send what their forward sends."""
        found = super()._parts(op)
        if self.again and op.kind in BACKWARD_KINDS:
            lengths = self.workload.lengths[op.mb][: op.slice + 1]
            again = self.workload.model.counts(self.workload.split[op.stage][: self.again])
            shares = ((count, self.share.of_kind(kind)) for kind, count in again.items() if count)
            layers = ((n, slice_collectives(own, lengths).forward_of_layer) for n, own in shares)
            found = [*found, *layers]
        return found

    @cached_property
    def _kept_sums(self) -> KeptSums:
        groups = tuple(self.links.group(axis) for axis in CELL_AXES)
        return kept_sums(self.share, self.hardware, groups, (self.rows, self.again))

    @property
    def _known(self) -> KnownSums:
        return self._kept_sums.of_ops

    @property
    def _tables(self) -> KnownTables:
        return self._kept_sums.of_stages

    @property
    def _prices(self) -> KnownSeconds:
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
        sent = self.rows * self.workload.boundary_bytes(whole) / self.workload.boundary_parts
        groups = (GroupLinks(self.links.cluster, 2, near) for near in (1, 2))
        far, near = (
            Link(_picoseconds(group.message_seconds(0.0)), _picoseconds(sent / group.rate))
            for group in groups
        )
        return far, near


def _picoseconds(seconds: float) -> Fraction:
    return round(seconds / float(PICOSECOND)) * PICOSECOND
