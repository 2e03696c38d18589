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
    RepeatedPart,
    SlicePart,
)
from penstock.cost.copies import Copies
from penstock.cost.cut_collectives import cut_collectives
from penstock.cost.cut_workload import CutWorkload
from penstock.cost.mesh_links import MeshLinks
from penstock.cost.op_collectives import op_parts
from penstock.cost.rank_share import RankShare
from penstock.cost.transformer import TransformerCost

RowSeconds = NDArray[np.float64]
StageLike = tuple[int | range, int, bool, bool]
"""Layers of a stage, how many of them have a window, and whether it is the first and the last."""
Axes = tuple[CellAxis, ...]
OpLike = tuple[str, StageLike, tuple[int, ...]]
"""Kind, stage, and slices up to an op's own."""
KnownSums = dict[tuple[str, StageLike, tuple[int, ...], Axes], tuple[float, ...]]
"""By kind, stage, slices up to the op's own, and axes: seconds and bytes of its collectives."""
KnownTables = dict[tuple[str, StageLike, tuple[tuple[int, ...], ...], Axes], RowSeconds]
"""By kind, stage, slices up to each unit that differs, and axes: the same of all these."""
CollectiveSeconds = tuple[str, float, float, float]
"""Of a collective: its axis, seconds in all, seconds exposed, bytes."""
PricedParts = list[tuple[int, list[CollectiveSeconds]]]
"""How often each part is sent, and what it takes."""
KnownSeconds = dict[int, tuple[SlicePart, list[CollectiveSeconds]]]
"""By the place of a part in memory: the part, and its prices."""
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
        key = kind, self._stages_like[stage], self._units.lengths, timed
        if key not in self._tables:
            ops = [Op(kind, stage, *place) for place in self._units.places]
            self._tables[key] = np.array([self._of_op(op, timed) for op in ops])
        return self._tables[key]

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

    def _of_op(self, op: Op, timed: Axes = CELL_AXES) -> tuple[float, ...]:
        """Seconds in all, seconds exposed, and bytes along each axis."""
        kind = "F" if op.kind in FORWARD_KINDS else op.kind
        slices = self.workload.lengths[op.mb][: op.slice + 1]
        key = kind, self._stages_like[op.stage], slices, timed
        if key not in self._known:
            self._known[key] = _sums(self._priced_once(key[:3], op), timed)
        return self._known[key]

    def _priced_once(self, key: OpLike, op: Op) -> PricedParts:
        """What an op sends, whichever axes are looked at."""
        if key not in self._priced_ops:
            self._priced_ops[key] = self._priced_parts(op)
        return self._priced_ops[key]

    @cached_property
    def _priced_ops(self) -> dict[OpLike, PricedParts]:
        return {}

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
            return [(stage, 0, False, False) for stage in range(len(layers))]
        near, model = self.workload.windowed.tolist(), self.workload.model
        differ = model.blocks or model.subsampling is not None
        own: Sequence[int | range] = self.workload.split if differ else layers
        return [(each, near[at], at == 0, at == last) for at, each in enumerate(own)]

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

    def _priced_parts(self, op: Op) -> PricedParts:
        """What a rank sends in an op: how often, and each time what."""
        if isinstance(self.workload, CutWorkload):
            found = cut_collectives(self.workload, self.share, op)
            return [(each.times, [self._price(each)]) for each in found]
        parts = self._parts(op)
        return [(times, self._priced(part)) for times, part in parts]

    def _parts(self, op: Op) -> list[RepeatedPart]:
        return op_parts(self.workload, self.share, op, self.copies.on_shards)

    def _priced(self, part: SlicePart) -> list[CollectiveSeconds]:
        """The prices of a part that all ops of a slice have in common. It is known by its place in
        memory, where it stays because it is kept: comparing what is in it takes longer."""
        if id(part) not in self._prices:
            self._prices[id(part)] = part, [*map(self._price, part)]
        return self._prices[id(part)][1]

    def _price(self, each: Collective) -> CollectiveSeconds:
        return each.axis, self.seconds(each), self.exposed(each), float(each.sent)

    @cached_property
    def _known(self) -> KnownSums:
        """Ops of equal slices of different microbatches are alike."""
        return {}

    @cached_property
    def _tables(self) -> KnownTables:
        return {}

    @cached_property
    def _prices(self) -> KnownSeconds:
        return {}


def _sums(
    parts: Sequence[tuple[int, Sequence[CollectiveSeconds]]], timed: Axes
) -> tuple[float, ...]:
    each = [(n, price) for n, part in parts for price in part if price[0] in timed]
    total = sum([times * price[1] for times, price in each])
    exposed = sum([times * price[2] for times, price in each])
    sent: dict[str, float] = dict.fromkeys(CELL_AXES, 0.0)
    for times, (axis, _, _, size) in each:
        sent[axis] += times * size
    return total, exposed, *sent.values()
