"""What loans would change, from a run without them.

Slices of equal length differ only in how many slices of keys and values lie before them. So what an
op takes longer than the same op one slice earlier is the time of attention to one slice, which is
what a loan moves to another device.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from penstock.core.ops import Op
from penstock.core.shape import Shape
from penstock.cost.profile import NANOSECOND, Profile


@dataclass(frozen=True)
class LendingProfile(Profile):
    """The profile of a run with slices of equal length, in which every op did its own work."""

    def loan(self, op: Op, shape: Shape) -> Fraction:
        """By how much ops of this kind and stage grow from slice to slice."""
        return round(self.growth(op.kind, op.stage) / float(NANOSECOND)) * NANOSECOND

    @property
    def attention(self) -> float:
        """The share of attention in all ops; an op's own slice counts as half a slice of keys."""
        slices = sum(
            self.growth(kind, stage) * (slice + 0.5) for kind, stage, slice in self.seconds
        )
        return slices / sum(self.seconds.values())

    def growth(self, kind: str, stage: int) -> float:
        """Seconds, by the straight line that is nearest to the times of all slices."""
        times = {
            slice: time for (k, s, slice), time in self.seconds.items() if (k, s) == (kind, stage)
        }
        if len(times) < 2:
            return 0.0
        slices = np.array(list(times), np.float64) - np.mean(list(times))
        return max(0.0, float(slices @ np.array(list(times.values())) / (slices @ slices)))
