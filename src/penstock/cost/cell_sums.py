"""What the ops of a rank send in its cell, added up: seconds, seconds exposed, and bytes.

Ops of one kind, on stages that are alike, of slices that are alike send the same. And what one
layer sends in a slice is sent by all of them: it is priced once, and counted as often as there are
layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.arch.config import ModelConfig
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.table import LETTERS
from penstock.cost.alike_rows import AlikeRows, AlikeUnits, alike_rows, alike_units
from penstock.cost.collectives import (
    BACKWARD_KINDS,
    CELL_AXES,
    FORWARD_KINDS,
    GATHERING_KINDS,
    CellAxis,
    Collective,
)
from penstock.cost.copies import Copies
from penstock.cost.cut_collectives import cut_collectives
from penstock.cost.cut_workload import CutWorkload
from penstock.cost.mesh_links import MeshLinks
from penstock.cost.op_collectives import PartOfSlice, RepeatedPart, op_parts
from penstock.cost.rank_share import RankShare
from penstock.cost.transformer import TransformerCost

RowSeconds = NDArray[np.float64]
StageLike = tuple[int | range, tuple[bool, ...], bool, bool]
"""Layers of a stage, which of them have a window, and whether it is the first and the last."""
Axes = tuple[CellAxis, ...]
KnownTables = dict[tuple[str, StageLike, Axes], RowSeconds]
"""By kind, stage and axes: seconds and bytes of what is sent, of each unit that differs."""
PartPrices = NDArray[np.float64]
"""Of each collective of a part, by unit: seconds in all, seconds exposed, bytes along each axis."""
KnownPrices = dict[tuple[ModelConfig, int | None, str, Axes], PartPrices]
"""By kind of layer, window, name of the part and axes."""
COMMUNICATING = FORWARD_KINDS + BACKWARD_KINDS + GATHERING_KINDS
"""Kinds whose ranks send to others of their cell."""
_COMMUNICATES = np.array([letter in COMMUNICATING for letter in LETTERS])


@dataclass(frozen=True, kw_only=True)
class CellSums(TransformerCost):
    """What a rank at some place of a cell sends, over the links of a mesh."""

    share: RankShare
    links: MeshLinks
    copies: Copies

    @property
    def joined(self) -> int:
        """Ranks that share matrices have words of their own: each adds up all tokens of a slice
        with the others, of which it hands on its share."""
        return self.share.cell.tensor

    def alike(self, schedule: Schedule) -> AlikeRows:
        """The sorts of a schedule's rows."""
        return alike_rows(schedule, self._units.numbers)

    def _of_sorts(self, schedule: Schedule, timed: Axes = CELL_AXES) -> RowSeconds:
        """Seconds in all, seconds exposed and bytes along each axis, of each sort of rows; of what
        is sent along some axes."""
        sorts, stages = self.alike(schedule), len(self.workload.layers)
        columns = np.zeros((len(sorts.first), 2 + len(CELL_AXES)))
        chosen = np.flatnonzero(_COMMUNICATES[sorts.kind])
        key = sorts.kind[chosen] * stages + self._like_numbers[sorts.stage[chosen]]
        different, which = np.unique(key, return_inverse=True)
        tables = [
            self._of_stage(LETTERS[kind], int(self._like_stages[number]), timed)
            for kind, number in (divmod(each, stages) for each in different.tolist())
        ]
        if tables:
            columns[chosen] = np.array(tables)[which, sorts.alike[chosen]]
        return columns

    def _of_stage(self, kind: str, stage: int, timed: Axes) -> RowSeconds:
        """The same of all ops of a kind on a stage, by units that differ."""
        kind = "F" if kind in FORWARD_KINDS else kind
        key = kind, self._stages_like[stage], timed
        if key not in self._tables:
            self._tables[key] = self._added_up(kind, stage, timed)
        return self._tables[key]

    def _added_up(self, kind: str, stage: int, timed: Axes) -> RowSeconds:
        """The same, worked out: one collective after the other, as often as it happens."""
        parts = self._priced_parts(kind, stage, timed)
        nothing = np.zeros((1, 2 + len(CELL_AXES), len(self._units.places)))
        there = ((times, prices) for times, prices in parts if len(prices))
        each = [nothing, *(prices if times == 1 else times * prices for times, prices in there)]
        return np.asarray(np.concatenate(each).sum(axis=0).T)

    def seconds(self, collective: Collective) -> float:
        """Of one time, until the last byte is there."""
        latency = collective.calls * float(self.hardware.latency)
        return float(collective.sent) / self.links.rate(collective.axis) + latency

    def exposed(self, collective: Collective) -> float:
        """What of it is not hidden."""
        return self._price(collective)[1]

    def hidden(self, collective: Collective) -> float:
        """Seconds of what is computed while it runs."""
        beside, rate = collective.beside, self.hardware
        return (
            beside.linear / rate.linear
            + float(beside.attention) / rate.attention
            + float(beside.attention_backward) / rate.attention_backward
        )

    @cached_property
    def _units(self) -> AlikeUnits:
        """Units that differ: those of the same slices up to them are alike."""
        return alike_units(self.workload.lengths)

    @cached_property
    def _stages_like(self) -> list[StageLike]:
        """What stages that communicate alike have in common: as many layers, the ends of the model
        apart. Where layers differ, or have tokens left out, they are the same layers: other layouts
        have other layers on a stage of the same number. Stages of attention alone are different."""
        layers, last = self.workload.layers, len(self.workload.layers) - 1
        if self.workload.weightless:
            return [(stage, (), False, False) for stage in range(len(layers))]
        model, near = self.workload.model, [self._windows_of(own) for own in self.workload.split]
        differ = model.blocks or model.subsampling is not None
        own: Sequence[int | range] = self.workload.split if differ else layers
        return [(each, near[at], at == 0, at == last) for at, each in enumerate(own)]

    def _windows_of(self, layers: range) -> tuple[bool, ...]:
        """Which of some layers have a window; of a model where they come and go."""
        model = self.workload.model
        return tuple(map(model.has_window, layers)) if model.window_pattern else ()

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

    def _priced_parts(self, kind: str, stage: int, timed: Axes) -> list[tuple[int, PartPrices]]:
        """What a rank sends in ops of a kind on a stage: how often, and each time what."""
        if not isinstance(self.workload, CutWorkload):
            return [(times, self._priced(part, timed)) for times, part in self._parts(kind, stage)]
        ops = (Op(kind, stage, *place) for place in self._units.places)
        sent = zip(*(cut_collectives(self.workload, self.share, op) for op in ops), strict=True)
        return [(each[0].times, self._by_unit([each], timed)) for each in sent]

    def _parts(self, kind: str, stage: int) -> list[RepeatedPart]:
        return op_parts(self.workload, self.share, (kind, stage), self.copies.on_shards)

    def _priced(self, part: PartOfSlice, timed: Axes) -> PartPrices:
        """The prices of a part that all ops of a slice have in common."""
        key = part.share.model, part.window, part.name, timed
        if key not in self._prices:
            sent = zip(*map(part.of, self._units.lengths), strict=True)
            self._prices[key] = self._by_unit([*sent], timed)
        return self._prices[key]

    def _by_unit(self, sent: Sequence[Sequence[Collective]], timed: Axes) -> PartPrices:
        """The prices of collectives, of which each is sent in every unit."""
        found = np.zeros((len(sent), 2 + len(CELL_AXES), len(self._units.places)))
        for prices, each in zip(found, sent):
            if each[0].axis in timed:
                prices[:2] = np.array([*map(self._price, each)]).T
                prices[2 + CELL_AXES.index(each[0].axis)] = [float(one.sent) for one in each]
        return found

    def _price(self, each: Collective) -> tuple[float, float]:
        """Seconds in all, and those that are not hidden."""
        seconds = self.seconds(each)
        return seconds, max(0.0, seconds - self.hidden(each))

    @cached_property
    def _tables(self) -> KnownTables:
        return {}

    @cached_property
    def _prices(self) -> KnownPrices:
        return {}
