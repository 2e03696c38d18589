"""What a search works on: stages on devices, in whole ticks of time and whole grains of memory.

A search prices thousands of candidates, so prices are turned into integers once. They stay exact:
a tick divides every time, a grain divides every size, and the result of a search is what the
simulator finds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.chain_clock import Cells, chain_cells
from penstock.core.schedule import Lanes
from penstock.cost.layers import Layer, Layers
from penstock.cost.shares import refuse_overflow
from penstock.schedules import Case

Whole = NDArray[np.int64]
UNLIMITED = 2**61
"""A memory that no order exceeds."""
SPLIT_LETTERS = "FIW"
FUSED_LETTERS = "FB"


class Scale(NamedTuple):
    """Layers in whole numbers: what a tick of time and a grain of memory are worth."""

    layers: Whole
    """Columns F, I, W, act, stash of each layer."""
    hop: int
    tick: Fraction
    grain: Fraction

    @classmethod
    def of(cls, layers: Layers, case: Case) -> "Scale":
        """Layers at the prices of a request."""
        prices = Layer(case.F, case.I, case.W, case.act, case.stash)
        priced = [Layer(*(a * b for a, b in zip(layer, prices))) for layer in layers]
        tick = _divisor([t for layer in priced for t in layer[:3]] + [case.hop])
        grain = _divisor([size for layer in priced for size in layer[3:]])
        rows = [(*(v / tick for v in x[:3]), *(v / grain for v in x[3:])) for x in priced]
        refuse_overflow(case.m * 8 * int(sum(map(sum, rows)) + 2 * len(rows) * case.hop / tick))
        return cls(np.array([list(map(int, row)) for row in rows], np.int64).reshape(-1, 5),
                   int(case.hop / tick), tick, grain)  # fmt: skip

    def limit(self, limit: Fraction | None) -> int:
        """A memory limit in grains."""
        return UNLIMITED if limit is None else min(int(limit / self.grain), UNLIMITED)


def _divisor(values: Sequence[Fraction]) -> Fraction:
    """A fraction of which all values are multiples."""
    return Fraction(1, lcm(*(value.denominator for value in values)))


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Stages on devices: everything that an order is priced by."""

    microbatches: int
    """Sequences; each has so many `slices`."""
    device: Whole
    """Device of each stage."""
    time: Whole
    """Ticks of each kind (F, I, W, or F and B) on each stage, for a slice."""
    act: Whole
    """Memory of a slice on each stage from the start of F to the end of I or B."""
    stash: Whole
    """Memory of a slice on each stage from the end of I to the end of W."""
    cap: Whole
    """Memory that each device may use."""
    hop: int = 0
    slices: int = 1

    @classmethod
    def of(
        cls,
        scale: Scale,
        split: Sequence[int],
        placement: Sequence[int],
        m: int,
        cap: int,
        slices: int = 1,
    ) -> "Pipeline":
        """The pipeline of layers cut into stages, with split backwards; the scale is of a slice."""
        starts = np.cumsum([0, *split])[:-1]
        stages = np.add.reduceat(scale.layers, starts, axis=0)
        device = np.array(placement, np.int64)
        caps = np.full(int(device.max()) + 1, cap, np.int64)
        time = np.ascontiguousarray(stages[:, :3].T)
        act, stash = stages[:, 3].copy(), stages[:, 4].copy()
        return cls(m, device, time, act, stash, caps, scale.hop, slices)

    @cached_property
    def fused(self) -> "Pipeline":
        """The same with full backwards: I and W as one op, which needs no stash."""
        time = np.stack([self.time[0], self.time[1:].sum(axis=0)])
        return replace(self, time=time, stash=np.zeros_like(self.stash))

    @property
    def devices(self) -> int:
        return len(self.cap)

    @property
    def units(self) -> int:
        """Slices of all sequences."""
        return self.microbatches * self.slices

    @cached_property
    def ops(self) -> int:
        return self.time.size * self.units

    @cached_property
    def period(self) -> float:
        """Work of the busiest device for one slice."""
        return float(np.bincount(self.device, self.time.sum(axis=0)).max())

    @cached_property
    def earliest(self) -> NDArray[np.float64]:
        """When ops of the first turn could start, for each kind and stage: a W right behind its I.

        The first gradient is of the last slice, which follows the others through each stage.
        """
        forward, back = self.time[0], self.time[1]
        starts = np.zeros(self.time.shape)
        starts[0, 1:] = np.cumsum(forward[:-1])
        starts[1] = forward.sum() + (self.slices - 1) * forward.max()
        starts[1] += back.sum() - np.cumsum(back[::-1])[::-1]
        starts[2:] = starts[1]
        return starts

    @cached_property
    def held(self) -> Whole:
        """What a slice is reckoned with from its F on: an I may leave more than it found."""
        return np.maximum(self.act, self.stash)

    @cached_property
    def homes(self) -> tuple[Whole, Whole]:
        """Stages of each device, one device after the other, and where each device's begin."""
        stages = np.argsort(self.device, kind="stable")
        return stages, np.searchsorted(self.device[stages], np.arange(self.devices + 1))

    @cached_property
    def cells(self) -> Cells:
        """What holds for every op of a kind on a stage, as the fast clock reads it."""
        sizes = {"act": self.act, "stash": self.stash}
        device = tuple(self.device.tolist())
        return chain_cells(self.letters, device, self.units, self.hop, self.time, sizes)

    @cached_property
    def lane_stage(self) -> Whole:
        """The stage of each device that has only one, -1 for the others."""
        stages, first = self.homes
        return np.where(np.diff(first) == 1, stages[np.minimum(first[:-1], len(stages) - 1)], -1)

    @property
    def letters(self) -> str:
        return SPLIT_LETTERS if len(self.time) == 3 else FUSED_LETTERS


class Order(NamedTuple):
    """Lanes in columns: rows of device d are `start[d] : start[d + 1]`."""

    kind: Whole
    stage: Whole
    turn: Whole
    """Number of the slice in the order in which ops of its kind take them; see `turns`."""
    start: Whole

    def units(self, slices: int) -> Whole:
        """Number of the slice in the order of the sequence: turns turned round, and back again."""
        if slices == 1:
            return self.turn
        return turns(self.kind, *np.divmod(self.turn, slices), slices)

    def lanes(self, pipeline: Pipeline) -> Lanes:
        """The lanes as a generator returns them."""
        letters, slices = pipeline.letters, pipeline.slices
        kinds = [letters[kind] for kind in self.kind.tolist()]
        mb, slice = np.divmod(self.units(slices), slices)
        ops: list[Any] = list(zip(kinds, self.stage.tolist(), mb.tolist(), slice.tolist()))
        bounds = self.start.tolist()
        return [ops[begin:end] for begin, end in pairwise(bounds)]


def turns(kind: Whole, mb: Whole, slice: Whole, slices: int) -> Whole:
    """Forwards take the slices of a sequence from first to last, gradients from last to first.

    >>> turns(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0]), np.array([0, 1, 1, 0]), 2)
    array([0, 1, 0, 1])
    """
    return mb * slices + np.where(kind == 0, slice, slices - 1 - slice)
