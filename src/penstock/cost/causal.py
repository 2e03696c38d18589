"""Unit times of which a part is causal attention.

A slice's weights cost what its tokens are; its attention also costs what came before it. With a
part a of the time in attention, a slice with the share x of the tokens behind a share b costs

    (1 - a) x + a x (2b + x)

of its microbatch's time, which adds up to 1 over a sequence. Memory goes with the tokens alone, so
equal slices are equal in memory and unequal in time.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np

from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost, exact
from penstock.cost.shares import Scaled, refuse_overflow, whole
from penstock.errors import ShapeError


@dataclass(frozen=True)
class CausalCost(UnitCost):
    """Times of whole microbatches, and the part of them that is causal attention."""

    attention: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "attention", exact(self.attention))
        if not 0 <= self.attention <= 1:
            raise ShapeError(
                f"attention is {self.attention} of the time", hint="give a part from 0 to 1"
            )

    @property
    def separable(self) -> bool:
        return super().separable and not self.attention

    def durations(self, schedule: Schedule) -> Scaled:
        scaled, shape = super().durations(schedule), schedule.shape
        if not self.attention:
            return scaled
        factors, scale = whole([factor for mb in range(shape.microbatches)
                                for factor in self._factors(shape, mb)])  # fmt: skip
        layers = schedule.table.of_kinds("FNRBIW")
        refuse_overflow(int(factors.max()) * int(scaled.ticks.max()) * len(scaled.ticks))
        factor = np.where(layers, factors[schedule.unit], scale)
        return Scaled(scaled.ticks * factor, scaled.tick / scale)

    def _factors(self, shape: Shape, mb: int) -> list[Fraction]:
        """What the slices of a microbatch cost beside their tokens."""
        tokens = [shape.share_of_slice(mb, slice) for slice in range(shape.slices[mb])]
        before = accumulate(tokens, initial=Fraction(0))
        return [1 - self.attention + self.attention * (2 * b + x) for x, b in zip(tokens, before)]

    def loan(self, op: Op, shape: Shape) -> Fraction:
        """Time of `op` with one earlier slice of average length."""
        before = sum((shape.share_of_slice(op.mb, s) for s in range(op.slice)), Fraction(0))
        pairs = 2 * shape.share_of_slice(op.mb, op.slice) * before / max(op.slice, 1)
        whole_time = self.time(op.kind) * shape.share_of_stage(op.stage)
        return super().loan(op, shape) + whole_time * self.attention * pairs
