"""The table behind the search for slices: what every slice that could be cut would cost.

Cuts are allowed on a grid of positions. The table holds the latency of the slice from each start to
each end as whole ticks, so that sums and comparisons are exact.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np

from penstock.core.table import Ticks
from penstock.errors import ShapeError

Latency = Callable[[int, int], Fraction]
"""Time of one stage for a slice of so many tokens that stand behind so many others."""

FORBIDDEN = 2**61
"""Cost of what is not allowed; two of them still fit a 64-bit number."""
MAX_POSITIONS = 1024
"""Positions at which a cut may be tried; the table of latencies has half their square."""


class LengthGrid(NamedTuple):
    """Where cuts are allowed: every `unit` tokens, no slice below `minimum`."""

    length: int
    unit: int
    minimum: int

    @property
    def positions(self) -> int:
        return self.length // self.unit


def grid_of(length: int, stages: int, unit: int, minimum: int) -> LengthGrid:
    for name, value in (("length", length), ("stages", stages), ("unit", unit)):
        if value < 1:
            raise ShapeError(f"{name} is {value}, but must be at least 1", hint="give 1 or more")
    if length % unit or length // unit > MAX_POSITIONS:
        raise ShapeError(
            f"{length} tokens cannot be searched in steps of {unit}: the length must be a multiple "
            f"of the unit, with at most {MAX_POSITIONS} steps",
            hint="take a unit that divides the length, such as 128",
        )
    return LengthGrid(length, unit, minimum)


def span_tables(
    latencies: Sequence[Latency], grid: LengthGrid, terms: int
) -> tuple[list[Ticks], Fraction]:
    """For each latency the cost of every slice, by end and start position, in whole ticks.

    `terms` is how many of them may be added up.
    """
    ends = range(1, grid.positions + 1)
    places = [(end, start) for end in ends for start in range(end)]
    places = [(e, s) for e, s in places if (e - s) * grid.unit >= grid.minimum]
    times = [
        [Fraction(latency((e - s) * grid.unit, s * grid.unit)) for e, s in places]
        for latency in latencies
    ]
    scale = lcm(*{time.denominator for column in times for time in column})
    _refuse_times([time for column in times for time in column], scale, terms)
    tables = [np.full((grid.positions + 1,) * 2, FORBIDDEN, np.int64) for _ in latencies]
    for table, column in zip(tables, times):
        for place, time in zip(places, column):
            table[place] = int(time * scale)
    return tables, Fraction(1, scale)


def _refuse_times(times: list[Fraction], scale: int, terms: int) -> None:
    if min(times, default=0) < 0:
        raise ShapeError("a slice has a negative latency", hint="give times of 0 or more")
    if max(times, default=0) * scale * terms >= FORBIDDEN:
        raise ShapeError(
            "the latencies are too finely divided for whole ticks of 64 bits",
            hint="round them to a common tick, such as a nanosecond",
        )
