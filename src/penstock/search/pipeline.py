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

from penstock.core.schedule import Lanes
from penstock.cost.layers import Layer, Layers
from penstock.cost.shares import refuse_overflow
from penstock.schedules import Case

Whole = NDArray[np.int64]
UNLIMITED = 2**61
"""A memory that no order exceeds."""
LETTERS = "FIW"
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
    device: Whole
    """Device of each stage."""
    time: Whole
    """Ticks of each kind (F, I, W, or F and B) on each stage."""
    act: Whole
    """Memory of each stage from the start of F to the end of I or B."""
    stash: Whole
    """Memory of each stage from the end of I to the end of W."""
    cap: Whole
    """Memory that each device may use."""
    hop: int = 0

    @classmethod
    def of(
        cls, scale: Scale, split: Sequence[int], placement: Sequence[int], m: int, cap: int
    ) -> "Pipeline":
        """The pipeline of layers cut into stages, with split backwards."""
        starts = np.cumsum([0, *split])[:-1]
        stages = np.add.reduceat(scale.layers, starts, axis=0)
        device = np.array(placement, np.int64)
        caps = np.full(int(device.max()) + 1, cap, np.int64)
        time = np.ascontiguousarray(stages[:, :3].T)
        return cls(m, device, time, stages[:, 3].copy(), stages[:, 4].copy(), caps, scale.hop)

    @cached_property
    def fused(self) -> "Pipeline":
        """The same with full backwards: I and W as one op, which needs no stash."""
        time = np.stack([self.time[0], self.time[1:].sum(axis=0)])
        return replace(self, time=time, stash=np.zeros_like(self.stash))

    @property
    def devices(self) -> int:
        return len(self.cap)

    @cached_property
    def ops(self) -> int:
        return self.time.size * self.microbatches

    @cached_property
    def period(self) -> float:
        """Work of the busiest device for one microbatch."""
        return float(np.bincount(self.device, self.time.sum(axis=0)).max())

    @cached_property
    def earliest(self) -> NDArray[np.float64]:
        """When ops of microbatch 0 could start, for each kind and stage: a W right behind its I."""
        forward, back = self.time[0], self.time[1]
        starts = np.zeros(self.time.shape)
        starts[0, 1:] = np.cumsum(forward[:-1])
        starts[1] = forward.sum() + back.sum() - np.cumsum(back[::-1])[::-1]
        starts[2:] = starts[1]
        return starts

    @cached_property
    def held(self) -> Whole:
        """What a microbatch is reckoned with from its F on: an I may leave more than it found."""
        return np.maximum(self.act, self.stash)

    @cached_property
    def homes(self) -> tuple[Whole, Whole, Whole]:
        """Stages of each device, one device after the other; where each device's begin; and the
        memory that later stages of the same device will want for the same microbatch."""
        stages = np.argsort(self.device, kind="stable")
        first = np.searchsorted(self.device[stages], np.arange(self.devices + 1))
        total = np.cumsum(self.held[stages])
        reserved = np.empty_like(self.held)
        reserved[stages] = total[first[1:] - 1][self.device[stages]] - total
        return stages, first, reserved

    @property
    def letters(self) -> str:
        return LETTERS if len(self.time) == 3 else FUSED_LETTERS


class Order(NamedTuple):
    """Lanes in columns: rows of device d are `start[d] : start[d + 1]`."""

    kind: Whole
    stage: Whole
    mb: Whole
    start: Whole

    def lanes(self, letters: str) -> Lanes:
        """The lanes as a generator returns them."""
        kinds = [letters[kind] for kind in self.kind.tolist()]
        ops: list[Any] = list(zip(kinds, self.stage.tolist(), self.mb.tolist(), [0] * len(kinds)))
        bounds = self.start.tolist()
        return [ops[begin:end] for begin, end in pairwise(bounds)]
