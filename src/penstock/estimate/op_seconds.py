"""Seconds of the ops of one rank, from tables that its schedules have in common.

A search prices a rank's ops in many schedules and with several ways to share its state. An op takes
as long in all of them: it is worked out once, by kind, stage and slice, and rows look it up.
"""

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from penstock.core.ops import STAGE_KINDS
from penstock.core.schedule import Schedule
from penstock.core.table import CODE, LETTERS
from penstock.cost.cell_sums import COMMUNICATING, Axes, RowSeconds
from penstock.cost.cell_workload import CellWorkload
from penstock.cost.collectives import BACKWARD_KINDS, CELL_AXES
from penstock.cost.cut_workload import CutWorkload
from penstock.cost.kept_workload import KeptWorkload
from penstock.cost.work_amounts import WorkAmounts
from penstock.cost.workload import Workload
from penstock.estimate.bracket_times import bracket_seconds
from penstock.estimate.cluster_links import ClusterLinks
from penstock.estimate.cut_times import LayersOfStages, cut_seconds
from penstock.estimate.kept import KeptSeconds, kept_seconds
from penstock.estimate.known_seconds import heads_seconds, units_seconds
from penstock.estimate.layer_seconds import LayerColumns, UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.layers_again import KindOfLayers
from penstock.estimate.layout_bytes import LayoutBytes
from penstock.estimate.op_table import Kinds, OpTable
from penstock.estimate.update_times import UpdateTimes

UPDATING = "VUA"
"""Kinds that end a step on the GPU: the norm of gradients, and updates."""

_COUNTED = (Workload, CellWorkload, KeptWorkload)
"""Workloads whose ops take as long on stages that are alike."""


@dataclass(frozen=True, kw_only=True)
class SecondsOfOps(LayoutBytes):
    """What ops of a rank compute, and wait for."""

    links: ClusterLinks
    times: LayerTimes
    update: UpdateTimes
    origin: Self | None = field(default=None, compare=False, repr=False)
    """The same rank among other copies, which has tables of its ops."""

    @property
    def _common(self) -> Self:
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

    def _exposed_of(self, timed: Axes, kinds: Kinds) -> NDArray[np.float64]:
        """What ops of some kinds wait for along some axes, by stages that are alike and by unit."""
        stages = self._like_stages.tolist()
        tables = [[self._of_stage(kind, stage, timed) for stage in stages] for kind in kinds]
        return np.array(tables)[..., 1]

    def _copied(self, schedule: Schedule) -> RowSeconds:
        """What rows have to do with copies of their weights: the total of `between_copies`."""
        known, kinds = self._common._copies_known, sorted(schedule.table.kinds & STAGE_KINDS)
        key = ("".join(kinds), self.copies.count, self.copies.shard)
        if key not in known:
            known[key] = self._to_copies(kinds, schedule)
        sorts = self.alike(schedule)
        return np.asarray(known[key][sorts.kind, sorts.stage][sorts.of_row])

    def _to_copies(self, kinds: Kinds, schedule: Schedule) -> RowSeconds:
        """Seconds of ops of some kinds on each stage, and behind them on each shard, by all kinds
        that there are."""
        different, which = self._common._like_homes
        sent = np.array(self.copies.bytes_sent(kinds, different)).reshape(-1, 2)
        seconds = self.copies_seconds(schedule, *sent.T).reshape(len(kinds), len(different))
        table = np.zeros((len(LETTERS), len(which)))
        table[[CODE[kind] for kind in kinds]] = seconds[:, which]
        return table

    @cached_property
    def _like_homes(self) -> tuple[list[int], NDArray[np.int64]]:
        """Stages and shards that differ in what they send to copies, and of each one which of these
        it is like."""
        likes = [*map(self.copies.like, range(self.update.shape.homes))]
        different, which = np.unique(likes, return_inverse=True)
        return different.tolist(), which

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

    def _by_stages(self, kinds: Kinds) -> NDArray[np.float64]:
        """Seconds of ops of some kinds, by stages that are alike and by unit; layouts with as many
        layers on a stage have the same."""
        known = self._kept_seconds.of_stages
        stages = [self._stages_like[stage] for stage in self._like_stages.tolist()]
        lacking = [kind for kind in kinds if any((kind, stage) not in known for stage in stages)]
        for kind, found in zip(lacking, self._of_kinds(lacking) if lacking else ()):
            known.update(((kind, stage), own) for stage, own in zip(stages, found))
        every = [[known[kind, stage] for stage in stages] for kind in kinds]
        return np.array(every) + self.times.between

    @cached_property
    def _kept_seconds(self) -> KeptSeconds:
        if type(self.workload) not in _COUNTED:  # counted in another way
            return KeptSeconds({}, {})
        shape, counts = self.update.shape, (self.rows, self.again)
        ends = (shape.embed, shape.loss, shape.shards)
        return kept_seconds(self.times, self.share, counts, ends, self._units.lengths)

    def _of_kinds(self, kinds: Kinds) -> NDArray[np.float64]:
        """The same, worked out."""
        at, work, chosen = [CODE[kind] for kind in kinds], self._rates, self._like_stages
        rest = np.rint(work.linear[at] - self._layer_products[at])[:, chosen]
        rates = np.array([*map(self.times.lookup_rate, kinds)])[:, None]
        moved = work.lookup[at] / rates + work.copy[at] / self.hardware.host
        found = moved[:, chosen, None] * self._whole_tokens
        found += self._of_layers(kinds)
        for own, number in np.argwhere(rest).tolist():
            head = (self._all_units, float(rest[own, number]), kinds[own])
            found[own, number] += heads_seconds(self.times, *head)
        return np.asarray(found + self._of_brackets(kinds))

    def _of_layers(self, kinds: Kinds) -> NDArray[np.float64]:
        """The same of the layers of each stage."""
        work, chosen = self.workload, self._like_stages
        if isinstance(work, CutWorkload):
            return self._of_cut_layers(work, kinds)
        found = np.zeros((len(kinds), len(chosen), len(self.units)))
        backward = [kind in BACKWARD_KINDS for kind in kinds]
        for own, seconds in self._layer_seconds:
            found += own.layers[chosen, None] * seconds.of_kinds(kinds)[:, None]
            if self.again:
                found[backward] += own.again[chosen, None] * seconds.forward
        return found

    def _of_cut_layers(self, work: CutWorkload, kinds: Kinds) -> NDArray[np.float64]:
        """The same of the parts of layers."""
        tokens = [self.rows * sum(each[-1:]) for each in self._units.lengths]
        messages = np.array([*(work.boundaries(each)[:2] for each in tokens), (0, 0)], float)
        sorts = [
            LayersOfStages(own.layers, self.units_of(own.workload), own.times(self.times))
            for own in self.kinds_of_layers
        ]
        each = [cut_seconds(work, kind, self.times, sorts, messages.T) for kind in kinds]
        return np.array(each)[:, self._like_stages]

    @cached_property
    def _layer_seconds(self) -> list[tuple[KindOfLayers, LayerColumns]]:
        """What a layer of each kind takes, by unit."""
        found = []
        for own in self.kinds_of_layers:
            same = own.workload is self.workload
            units = self._all_units if same else tuple(self.units_of(own.workload))
            seconds = units_seconds(own.times(self.times), units)
            found.append((own, LayerColumns.of(seconds)))
        return found

    @cached_property
    def _all_units(self) -> tuple[UnitTokens, ...]:
        return tuple(self.units)

    @cached_property
    def _whole_tokens(self) -> NDArray[np.float64]:
        return np.array([float(each.whole) for each in self.units])

    @cached_property
    def _layer_products(self) -> NDArray[np.int64]:
        return self.workload.layer_products

    def _of_brackets(self, kinds: Kinds) -> NDArray[np.float64] | float:
        """The same of brackets, where the model leaves out tokens."""
        work = self.workload
        if not isinstance(work, KeptWorkload):
            return 0.0
        tokens = [int(work.tokens[first]) for first in self._units.first]
        rate = self.times.memory_rate
        each = [bracket_seconds(work, kind, tokens, self.rows, rate) for kind in kinds]
        return np.array(each)[:, self._like_stages]

    @cached_property
    def _rates(self) -> WorkAmounts:
        return self.workload.rates(self.update.shape)
