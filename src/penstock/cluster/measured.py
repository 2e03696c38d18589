"""What kernels reach on a machine that was measured, and what lies between the sizes of it.

A data sheet and one share for all products say little about short slices, narrow matrices or a
processor without a data sheet. A profile has measured kernels at some sizes. At another size the
rate is that of the nearest sizes:

    distance    between the logarithms of all sizes: twice as many tokens are 1 away
    rate        geometric mean of the `NEAREST` sizes, each weighted by 1 / distance^2

So a size that was measured has its own rate, and one beyond all of them that of the largest. In a
step kernels are slower than one by one, or faster: a GPU lowers its clock, a cache is warm. A
profile has such a factor for each pass, from a step of the model that was profiled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.errors import ShapeError

NEAREST = 4
"""Sizes that decide about one between them."""
PASSES = ("forward", "inputs", "weights")
"""Passes of a product: forward, gradient of its input, gradient of its weight."""
ATTENTION_PASSES = ("forward", "backward")
MOVING_KERNELS = (
    *((name, passed) for name in ("norm", "sum", "rotation", "gate") for passed in PASSES[:2]),
    ("loss", "inputs"),
)
"""Kernels that only move bytes, with their passes."""
FACTORS = ("forward", "inputs", "weights", "attention forward", "attention backward", "head")
"""What a step is compared with kernels one by one in."""
END_RATES = ("lookup forward", "lookup inputs", "norm", "update")
"""Rates of what is measured in a step alone: embedding, norm of the gradients, update."""


class RatePoint(NamedTuple):
    """A rate at some sizes."""

    sizes: tuple[float, ...]
    rate: float


class RateSurface:
    """Rates at measured sizes, and between them."""

    def __init__(self, points: Sequence[RatePoint]) -> None:
        if not points:
            raise ShapeError("nothing was measured", hint="make the profile again")
        for sizes, rate in points:
            if not rate > 0 or not min(sizes) > 0:
                raise ShapeError(
                    f"a rate of {rate:g} at sizes {', '.join(f'{size:g}' for size in sizes)}",
                    hint="sizes and rates of a profile are above 0",
                )
        self._at = np.log2(np.array([point.sizes for point in points], np.float64))
        self._rates = np.log2(np.array([point.rate for point in points], np.float64))

    def at(self, *sizes: float) -> float:
        """The rate at some sizes.

        >>> curve = RateSurface([RatePoint((1.0,), 2.0), RatePoint((16.0,), 8.0)])
        >>> curve.at(1.0), curve.at(4.0), curve.at(16.0)
        (2.0, 4.0, 8.0)
        """
        away = ((self._at - np.log2(np.array(sizes))) ** 2).sum(1)
        nearest = np.argsort(away, kind="stable")[:NEAREST]
        if away[nearest[0]] < 1e-12:
            return float(2 ** self._rates[nearest[0]])
        weights = 1 / away[nearest]
        return float(2 ** (self._rates[nearest] @ weights / weights.sum()))

    @property
    def largest(self) -> float:
        """The highest rate."""
        return float(2 ** self._rates.max())


@dataclass(frozen=True, eq=False)
class MeasuredKernels:
    """Rates of a machine, with what a step makes of them."""

    products: Mapping[str, RateSurface]
    """FLOPs per second by pass, at m, n and k."""
    attention: Mapping[str, RateSurface]
    """FLOPs per second by pass, at tokens, keys of a query, heads and size of a head."""
    moving: Mapping[tuple[str, str], RateSurface]
    """Bytes per second by kernel and pass, at bytes."""
    in_step: Mapping[str, float]
    """Seconds in a step for each second of kernels one by one."""
    rates: Mapping[str, float]
    """Bytes per second of what was measured in a step."""
    between: float
    """Seconds between two ops of a step."""
    precision: str
    fused: bool
    """Whether kernels of a layer are fused, which decides what they need while they run."""
    context: int = 0
    """Bytes of the device that a process takes beside its tensors."""
    gaps: float = 0.0
    """Share of what a step adds that lies in gaps of the allocator."""
    sums: Mapping[tuple[str, int], RateSurface] = field(default_factory=dict)
    """Bytes per second of collectives by type and ranks, at bytes that a rank sends."""

    def collective_seconds(self, name: str, ranks: int, sent: float) -> float | None:
        """Of a collective in which a rank sends so many bytes; None where none was measured.
        A group of another size is as the nearest measured one."""
        known = [size for kind, size in self.sums if kind == name]
        if not known or not sent:
            return None
        nearest = min(known, key=lambda size: abs(size - ranks))
        return sent / self.sums[name, nearest].at(sent)
