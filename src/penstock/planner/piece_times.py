"""Seconds and bytes of one microbatch on the ranks of a cell, layer by layer.

What a stage takes is a sum: so much for each layer, for the boundary to another stage, and for the
embedding and the head at the ends. The cost model of an estimate is asked for a small schedule with
a stage of each kind, and the parts are what is left when the others are subtracted.

    stage        0          1       2         3
    layers       1          1       2         1
    has also     embedding                    head
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.price import layout_cost
from penstock.estimate.step_schedule import StepSchedule

LAYERS = (1, 1, 2, 1)
FUSED, SPLIT = "FB", "FIW"
_IN = (("F", SPLIT), ("B", FUSED), ("I", SPLIT), ("W", SPLIT))
"""Kinds of ops, each with a schedule that has it."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Parts:
    """What a kind of op takes, as parts of a stage: arrays over slices."""

    layer: Floats
    boundary: Floats
    """For each stage."""
    embedding: Floats
    head: Floats

    @classmethod
    def of(cls, stages: Floats) -> "Parts":
        """From the four stages of a small schedule, by slices."""
        layer = stages[2] - stages[1]
        boundary = stages[1] - layer
        return cls(layer, boundary, stages[0] - stages[1], stages[3] - stages[1])

    @cached_property
    def sum(self) -> tuple[float, float, float, float]:
        """Of all slices."""
        parts = (self.layer, self.boundary, self.embedding, self.head)
        return tuple(float(each.sum()) for each in parts)  # type: ignore[return-value]


@dataclass(frozen=True)
class PieceTimes:
    """One microbatch of a layout, whatever its pipeline."""

    layout: TrainingLayout
    lengths: tuple[int, ...]

    @cached_property
    def computing(self) -> dict[str, Parts]:
        """Seconds of ops of each kind, without waiting."""
        return {kind: self._parts(self._computing[kinds], kind, kinds) for kind, kinds in _IN}

    @cached_property
    def waiting(self) -> dict[str, Parts]:
        """Seconds that they wait for ranks of their cell."""
        found = {}
        for kind, kinds in _IN:
            ticks, tick = self._cost_of(kinds).durations(self._small[kinds])
            found[kind] = self._parts(ticks * float(tick) - self._computing[kinds], kind, kinds)
        return found

    @cached_property
    def _computing(self) -> dict[str, Floats]:
        return {kinds: self.cost.computing(small) for kinds, small in self._small.items()}

    @cached_property
    def kept(self) -> Floats:
        """Bytes that a layer keeps until its backward, by slices."""
        return sum(self._parts(self._bytes(size), "F", FUSED).layer for size in ("act", "kv"))

    @cached_property
    def moved(self) -> float:
        """Bytes of a layer's activations, which copies to the host are charged for."""
        return float(self._parts(self._bytes("act"), "F", FUSED).layer.sum())

    @cached_property
    def given(self) -> Floats:
        """Bytes of a layer's input, by slices."""
        found = self.cost.workload.layer_bytes("input")[: len(self.lengths)]
        return np.asarray(found * self.layout.rows, np.float64)

    @cached_property
    def running(self) -> Floats:
        """What the backward of a stage with one layer needs while it runs, by slices."""
        return self._rows(self._bytes("temp"), "B", FUSED)[1]


    @cached_property
    def cost(self) -> LayoutCost:
        return self._cost_of(SPLIT)

    def _bytes(self, size: str) -> Floats:
        ticks, tick = self.cost.amounts(self._small[FUSED], size)
        return ticks * float(tick)

    def _parts(self, column: Floats, kind: str, kinds: str) -> Parts:
        return Parts.of(self._rows(column, kind, kinds))

    def _rows(self, column: Floats, kind: str, kinds: str) -> Floats:
        """A column of a table by stage and slice."""
        table, found = self._small[kinds].table, np.zeros((len(LAYERS), len(self.lengths)))
        rows = table.of_kinds(kind)
        found[table.stage[rows], table.slice[rows]] = column[rows]
        return found

    @cached_property
    def _small(self) -> dict[str, Schedule]:
        shape = Shape(1, len(LAYERS), (len(self.lengths),), layers=LAYERS)
        stages, slices = range(len(LAYERS)), range(len(self.lengths))
        found = {}
        for kinds in (FUSED, SPLIT):
            forward = [("F", stage, 0, at) for stage in stages for at in slices]
            back = [
                (kind, stage, 0, at)
                for stage in reversed(stages)
                for at in reversed(slices)
                for kind in kinds[1:]
            ]
            found[kinds] = Schedule.of("piece", shape, [forward + back])
        return found

    def _cost_of(self, kinds: str) -> LayoutCost:
        """What a cost model has found for one schedule it keeps, so there is one for each."""
        layout = replace(self.layout, model=replace(self.layout.model, layers=sum(LAYERS)))
        nothing = ((0,), (0,))
        return layout_cost(layout, StepSchedule(self._small[kinds], self.lengths, (0,), nothing))
