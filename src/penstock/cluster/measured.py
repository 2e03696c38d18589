"""What kernels reach on a machine that was measured, and what lies between the sizes of it.

A data sheet and one share for all products say little about short slices, narrow matrices or a
processor without a data sheet. A profile has measured kernels at some sizes: matrices or heads,
each with some numbers of tokens. At another size the rate follows by the logarithms of all sizes:

    tokens of a slice     on the straight line between the nearest numbers of tokens
    keys of a token       on the straight line between the nearest, at both numbers of tokens
    matrices, heads       geometric mean of the `NEAREST` ones, weighted by 1 / distance^2

So a size that was measured has its own rate, and one beyond all of them that of the last. In a
step kernels are slower than one by one, or faster: a GPU lowers its clock, a cache is warm. A
profile has such a factor for each pass, from a step of the model that was profiled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import ShapeError

NEAREST = 4
"""Sizes that decide about one between them."""
PRODUCT_PASSES = ("forward", "inputs", "weights")
"""Passes of a product: forward, gradient of its input, gradient of its weight."""
ATTENTION_PASSES = ("forward", "backward")
MOVING_KERNELS = (
    *(
        (name, passed)
        for name in ("norm", "sum", "rotation", "gate")
        for passed in PRODUCT_PASSES[:2]
    ),
    ("loss", "inputs"),
)
"""Kernels that only move bytes, with their passes."""
EXPERT_ROWS = "rows"
"""What moves rows of tokens to experts and back, and chooses these: of models with experts."""
ROUTING_KERNELS = tuple((EXPERT_ROWS, passed) for passed in PRODUCT_PASSES[:2])
FACTORS = ("forward", "inputs", "weights", "attention forward", "attention backward", "head")
"""What a step is compared with kernels one by one in."""
PRODUCTS_OF = ("layer", "head")
"""What has products with weights."""
FIXED_PARTS = (*PRODUCT_PASSES, "head")
"""What takes some time however few its tokens are."""
END_RATES = ("lookup forward", "lookup inputs", "norm", "update")
"""Rates of what is measured in a step alone: embedding, norm of the gradients, update."""


class RatePoint(NamedTuple):
    """A rate of a matrix or of heads, at tokens, or at tokens and keys."""

    group: tuple[float, ...]
    at: tuple[float, ...]
    rate: float


class RateSurface:
    """Rates at measured sizes, and between them."""

    def __init__(self, points: Sequence[RatePoint]) -> None:
        if not points:
            raise ShapeError("nothing was measured", hint="make the profile again")
        found: dict[tuple[float, ...], dict[tuple[float, ...], float]] = {}
        for group, at, rate in points:
            _refuse_point(group, at, rate)
            found.setdefault(_logarithms(group), {})[_logarithms(at)] = float(np.log2(rate))
        self._groups = np.array([*found])
        self._curves = [_Curve(rates) for rates in found.values()]
        self.largest = max(point.rate for point in points)
        """The highest rate."""

    def at(self, group: tuple[float, ...], at: tuple[float, ...]) -> float:
        """The rate at some sizes.

        >>> one = RateSurface([RatePoint((8.0,), (at,), 2 * at) for at in (1.0, 16.0)])
        >>> one.at((8.0,), (1.0,)), one.at((64.0,), (4.0,)), one.at((8.0,), (99.0,))
        (2.0, 8.0, 32.0)
        """
        here = _logarithms(at)
        weights = _weights(self._groups, np.array(_logarithms(group)))
        return float(2 ** sum(part * self._curves[one].at(here) for one, part in weights))


class _Curve:
    """Rates of one group by one size, or at each of them by a second one; all as logarithms."""

    def __init__(self, rates: Mapping[tuple[float, ...], float]) -> None:
        inner: dict[float, dict[tuple[float, ...], float]] = {}
        for (first, *others), rate in sorted(rates.items()):
            inner.setdefault(first, {})[tuple(others)] = rate
        self._first = [*inner]
        self._inner = [_Curve(each) if () not in each else each[()] for each in inner.values()]

    def at(self, here: Sequence[float]) -> float:
        first, *others = here
        rates = [each.at(others) if isinstance(each, _Curve) else each for each in self._inner]
        return float(np.interp(first, self._first, rates))


def _weights(known: Any, here: Any) -> list[tuple[int, float]]:
    """The nearest of some places, and what part of the mean each is."""
    away = ((known - here) ** 2).sum(1) if len(here) else np.zeros(len(known))
    nearest = np.argsort(away, kind="stable")[:NEAREST]
    if away[nearest[0]] < 1e-12:
        return [(int(nearest[0]), 1.0)]
    weights = 1 / away[nearest]
    return [*zip(nearest.tolist(), (weights / weights.sum()).tolist())]


def _logarithms(sizes: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(np.log2(size)) for size in sizes)


def _refuse_point(group: tuple[float, ...], at: tuple[float, ...], rate: float) -> None:
    if not rate > 0 or not min((*group, *at)) > 0:
        raise ShapeError(
            f"a rate of {rate:g} at sizes {', '.join(f'{size:g}' for size in (*group, *at))}",
            hint="sizes and rates of a profile are above 0",
        )


@dataclass(frozen=True, eq=False)
class MeasuredKernels:
    """Rates of a machine, with what a step makes of them."""

    products: Mapping[str, RateSurface]
    """FLOPs per second by pass, of matrices at tokens."""
    attention: Mapping[str, RateSurface]
    """FLOPs per second by pass, of heads and their size at tokens, and keys of a query for each of
    these."""
    moving: Mapping[tuple[str, str], RateSurface]
    """Bytes per second by kernel and pass, at bytes."""
    in_step: Mapping[str, float]
    """Seconds in a step for each second of kernels one by one."""
    fixed: Mapping[str, float]
    """Seconds of a layer in each pass, and of the head, that do not grow with its kernels."""
    of_whole: Mapping[str, float]
    """Seconds of a pass, or of the head, of a whole sequence for each second that it would take by
    the factors of slices."""
    rates: Mapping[str, float]
    """Bytes per second of what was measured in a step."""
    between: float
    """Seconds between two ops of a step."""
    precision: str
    fused: bool
    """Whether kernels of a layer are fused, which decides what they need while they run."""
    on_host: bool = False
    """Whether processors compute; their ranks talk without communicators of a GPU."""
    context: int = 0
    """Bytes of the device that a process takes beside its tensors."""
    gaps: float = 0.0
    """Share of what a step adds that lies in gaps of the allocator."""
    activations: Mapping[str, float] = field(default_factory=dict)
    """Of the profiled step's products, by `PRODUCTS_OF`: what they read and write beside weights,
    for each multiplication. Empty where a step takes as many times longer at any width."""
    windowed: Mapping[str, RateSurface] = field(default_factory=dict)
    """The same as `attention`, of heads, their size and a window that they have. Empty where none
    was measured."""
    grouped: Mapping[str, RateSurface] = field(default_factory=dict)
    """FLOPs per second by pass of kernels that multiply rows of several experts, of matrices and
    their number at rows of each. Empty where none was measured."""
    sums: Mapping[tuple[str, int], RateSurface] = field(default_factory=dict)
    """Bytes per second of collectives by type and ranks, at bytes that a rank sends."""

    def collective_seconds(self, name: str, ranks: int, sent: float) -> float | None:
        """Of a collective in which a rank sends so many bytes; None where none was measured.
        A group of another size is as the nearest measured one."""
        known = [size for kind, size in self.sums if kind == name]
        if not known or not sent:
            return None
        nearest = min(known, key=lambda size: abs(size - ranks))
        return sent / self.sums[name, nearest].at((), (sent,))

    def product_rate(self, passed: str, m: int, n: int, k: int, together: int = 1) -> float:
        """FLOPs per second of [m, k] x [k, n] in a pass, of several `together` in one kernel.
        Tokens are rows, or what the gradient of a weight is added up over."""
        group, tokens = ((m, n), k) if passed == "weights" else ((n, k), m)
        if together > 1 and passed in self.grouped:
            return self.grouped[passed].at((*group, together), (tokens,))
        return self.products[passed].at(group, (tokens,))

    def moving_rate(self, name: str, passed: str, moved: float) -> float:
        """Bytes per second of a kernel that moves so many; one that was not measured moves them as
        fast as a sum."""
        found = self.moving.get((name, passed)) or self.moving["sum", passed]
        return found.at((), (moved,))
