"""Seconds and bytes of one microbatch on the ranks of a cell, layer by layer.

What a stage takes is a sum: so much for each layer, for the boundary to another stage, and for the
embedding and the head at the ends. The cost model of an estimate is asked for a small model
(estimate/layer_sorts.py) with a stage for each layer and for each end, and one with nothing else:
the parts are what is left when that is subtracted.

    stage        0          1    ...   n    n + 1   n + 2
    layers       0          1    ...   1    0       0
    has also     embedding                          head
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.estimate.layer_sorts import Floats, LayerSorts, layer_sorts
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.price import layout_cost
from penstock.estimate.step_schedule import StepSchedule

FUSED, SPLIT = "FB", "FIW"


@dataclass(frozen=True)
class Parts:
    """What a kind of op takes, as parts of a stage: arrays over slices."""

    layer: Floats
    """By sort of layer, and slice."""
    boundary: Floats
    """For each stage."""
    embedding: Floats
    head: Floats

    @classmethod
    def of(cls, stages: Floats, layers: Sequence[int]) -> "Parts":
        """From the stages of a small schedule, by slices, and the layer of each sort."""
        boundary = stages[-2]
        each = stages[1:][[*layers]] - boundary
        return cls(each, boundary, stages[0] - boundary, stages[-1] - boundary)

    def __add__(self, other: "Parts") -> "Parts":
        each = ("layer", "boundary", "embedding", "head")
        return Parts(*(getattr(self, name) + getattr(other, name) for name in each))

    @cached_property
    def of_layers(self) -> Floats:
        """Of all slices, for a layer of each sort."""
        return np.asarray(self.layer.sum(axis=1))

    @cached_property
    def others(self) -> tuple[float, float, float]:
        """Of all slices, for a boundary, the embedding and the head."""
        parts = (self.boundary, self.embedding, self.head)
        return tuple(float(each.sum()) for each in parts)  # type: ignore[return-value]


@dataclass(frozen=True)
class PieceTimes:
    """One microbatch of a layout, whatever its pipeline."""

    layout: TrainingLayout
    lengths: tuple[int, ...]

    @cached_property
    def computing(self) -> dict[str, Parts]:
        """Seconds of ops of each kind, without waiting."""
        found = {kind: self._parts(self._computing, kind, SPLIT) for kind in SPLIT}
        return found | {"B": found["I"] + found["W"]}

    @cached_property
    def waiting(self) -> dict[str, Parts]:
        """Seconds that they wait for ranks of their cell."""
        found: dict[str, Parts] = {}
        for kinds in (FUSED, SPLIT):
            small = self._small(kinds)
            ticks, tick = self._cost_of(small).durations(small)
            waits = ticks * float(tick) - self.cost.computing(small)
            found |= {kind: self._parts(waits, kind, kinds) for kind in kinds}
        return found

    @cached_property
    def attention(self) -> tuple[Floats, Floats]:
        """Seconds of the attention of a layer of each sort, forward and backward: what can be lent
        of them."""
        cost = self.cost
        chosen = cost.unit_of[: len(self.lengths)].tolist()
        found = np.zeros((2, len(self._sorts.shown_by)))
        for own in cost.kinds_of_layers:
            times, units = own.times(cost.times), cost.units_of(own.workload)
            seconds = [times.attention_seconds(units[at]) for at in chosen]
            there = own.layers[[1 + layer for layer in self._sorts.shown_by]]
            found += np.outer(np.sum(seconds, axis=0), there)
        return found[0], found[1]

    @cached_property
    def shared_loss(self) -> float:
        """Seconds that the loss takes longer where devices share the words of the head."""
        cost = self.cost
        times, part = cost.times, cost.times.part
        token = 2.0 * (2 + part.trains_all) * part.head_weights
        found = 0.0
        for at in cost.unit_of[: len(self.lengths)].tolist():
            head = cost.units[at].whole, token * cost.units[at].whole
            found += times.head_seconds(*head, "S") - times.head_seconds(*head, "B")
        return max(0.0, found)

    @cached_property
    def _computing(self) -> Floats:
        return self.cost.computing(self._small(SPLIT))

    @cached_property
    def kept(self) -> Floats:
        """Bytes that a layer keeps until its backward, by sort and slice."""
        return self.act + self.keys

    @cached_property
    def tokens(self) -> Floats:
        """Tokens of a rank, by slices."""
        return self.cost.workload.tokens[: len(self.lengths)].astype(np.float64)

    @cached_property
    def act(self) -> Floats:
        """Bytes of a layer's activations, by sort and slice."""
        return self._layer(self._bytes("act", SPLIT))

    @cached_property
    def copied(self) -> Floats:
        """What copies to the host are charged for of them: not the pairs of attention that is not
        fused, nor what norms of other systems keep; but keys and values that no other slice
        needs."""
        work, small = self.cost.workload, self._small(SPLIT)
        moved = work.bytes(small, "act") * self.layout.rows
        if len(self.lengths) == 1:
            moved += work.bytes(small, "kv") * self.layout.rows
        return self._layer(np.asarray(moved, np.float64))

    @cached_property
    def keys(self) -> Floats:
        """Bytes of its keys and values."""
        return self._layer(self._bytes("kv", SPLIT))

    def _layer(self, column: Floats) -> Floats:
        """What a layer has of it, by sort and slice."""
        return self._parts(column, "F", SPLIT).layer

    @cached_property
    def given(self) -> Floats:
        """Bytes of a layer's input, by slices."""
        found = self.cost.workload.layer_bytes("input")[: len(self.lengths)]
        return np.asarray(found * self.layout.rows, np.float64)

    @cached_property
    def running(self) -> Floats:
        """What the backward of a stage with one layer needs while it runs, at least, by slices."""
        needed = self._rows(self._bytes("temp", FUSED), "B", FUSED)
        return np.asarray(needed[1:-2].min(axis=0))

    @cached_property
    def cost(self) -> LayoutCost:
        return self._cost_of(self._small(SPLIT))

    def _bytes(self, size: str, kinds: str) -> Floats:
        ticks, tick = self.cost.amounts(self._small(kinds), size)
        return np.asarray(ticks * float(tick))

    def _parts(self, column: Floats, kind: str, kinds: str) -> Parts:
        return Parts.of(self._rows(column, kind, kinds), self._sorts.shown_by)

    def _rows(self, column: Floats, kind: str, kinds: str) -> Floats:
        """A column of a table by stage and slice."""
        rows = _rows_of(kind, kinds, len(self.lengths), self._sorts.small.layers)
        return np.asarray(column[rows])

    def _small(self, kinds: str) -> Schedule:
        return _small_schedule(kinds, len(self.lengths), self._sorts.small.layers)

    @cached_property
    def _sorts(self) -> LayerSorts:
        return layer_sorts(self.layout.model)

    def _cost_of(self, small: Schedule) -> LayoutCost:
        """What a cost model has found for one schedule it keeps, so there is one for each."""
        layout = replace(self.layout, model=self._sorts.small, layers=())
        return layout_cost(layout, StepSchedule(small, self.lengths))


@lru_cache(maxsize=256)
def _rows_of(kind: str, kinds: str, count: int, layers: int) -> NDArray[np.int64]:
    """The row of each op of a kind, by stage and slice."""
    small = _small_schedule(kinds, count, layers)
    table, found = small.table, np.zeros((small.shape.stages, count), np.int64)
    rows = np.flatnonzero(table.of_kinds(kind))
    found[table.stage[rows], table.slice[rows]] = rows
    return found


@lru_cache(maxsize=64)
def _small_schedule(kinds: str, count: int, layers: int) -> Schedule:
    """One microbatch of so many slices through all stages and back, on one device."""
    counts = (0, *(1,) * layers, 0, 0)
    shape = Shape(1, len(counts), (count,), layers=counts)
    stages, slices = range(len(counts)), range(count)
    forward = [("F", stage, 0, at) for stage in stages for at in slices]
    back = [
        (kind, stage, 0, at)
        for stage in reversed(stages)
        for at in reversed(slices)
        for kind in kinds[1:]
    ]
    return Schedule.of("piece", shape, [forward + back])
