"""One time axis for several timelines.

Timelines count in ticks of their own. To lay them under each other exactly, all times are turned
into whole multiples of one quantum, the largest that divides every tick; each timeline starts at
zero.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from penstock.core.table import Ticks
from penstock.errors import ShapeError
from penstock.sim.timeline import Timeline


class Axis(NamedTuple):
    """The common axis: `length` quanta, each worth `quantum` in time."""

    quantum: Fraction
    length: int

    def quanta(self, timeline: Timeline, ticks: Ticks) -> Ticks:
        """Times of a timeline, counted in quanta from its own start."""
        return np.asarray((ticks - timeline.start.min()) * int(timeline.tick / self.quantum))

    @property
    def time(self) -> Fraction:
        """Length of the axis in time."""
        return self.length * self.quantum


def axis_of(timelines: Sequence[Timeline]) -> Axis:
    """The axis that holds all timelines."""
    if not timelines:
        raise ShapeError("there is no timeline to draw", hint="give at least one schedule")
    ticks = [timeline.tick for timeline in timelines]
    quantum = Fraction(gcd(*(t.numerator for t in ticks)), lcm(*(t.denominator for t in ticks)))
    length = max(int(timeline.makespan / quantum) for timeline in timelines)
    return Axis(quantum, max(length, 1))


def stride_of(timelines: Sequence[Timeline], axis: Axis) -> int:
    """Quanta that divide every start and end: often far more than one."""
    times = [axis.quanta(t, column) for t in timelines for column in (t.start, t.end)]
    return max(gcd(*(int(np.gcd.reduce(column)) for column in times)), 1)


def marks(length: Fraction, most: int) -> list[Fraction]:
    """Where an axis is marked: from zero, in steps of 1, 2 or 5 times a power of ten.

    >>> [int(mark) for mark in marks(Fraction(33), most=8)]
    [0, 5, 10, 15, 20, 25, 30]
    """
    step = _step(length, max(most, 1))
    return [step * place for place in range(int(length / step) + 1)]


def _step(length: Fraction, most: int) -> Fraction:
    step = Fraction(1)
    while length / step <= most:
        step /= 10
    while length / step > most:
        step *= 10
    return next(step * share for share in _SHARES if length / (step * share) <= most)


_SHARES = (Fraction(1, 5), Fraction(1, 2), Fraction(1))
