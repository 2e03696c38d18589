"""Timelines of seconds and bytes, drawn in units that one can read.

A picture writes the numbers that a timeline has. Where these are seconds and bytes, a peak has
eleven digits and an op takes 0.0004; the same step in milliseconds and GiB has neither.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from penstock.sim.timeline import Settled, Timeline


class DrawnUnit(NamedTuple):
    """A name, and what one of it is in seconds or bytes."""

    name: str
    worth: Fraction


TIME_UNITS = (
    DrawnUnit("s", Fraction(1)),
    DrawnUnit("ms", Fraction(1, 10**3)),
    DrawnUnit("us", Fraction(1, 10**6)),
)
SIZE_UNITS = tuple(
    DrawnUnit(f"{prefix}iB", Fraction(2**power)) for prefix, power in zip("GMK", (30, 20, 10))
)


def in_units(timelines: Sequence[Timeline]) -> list[Timeline]:
    """The timelines, all in the largest units of which the longest and the fullest have one; their
    names say which."""
    time = _unit(max(timeline.makespan for timeline in timelines), TIME_UNITS)
    size = _unit(max(max(timeline.peak) for timeline in timelines), SIZE_UNITS)
    return [_scaled(timeline, time, size) for timeline in timelines]


def _unit(most: Fraction, units: tuple[DrawnUnit, ...]) -> DrawnUnit:
    return next((unit for unit in units if most >= unit.worth), units[-1])


def _scaled(timeline: Timeline, time: DrawnUnit, size: DrawnUnit) -> Timeline:
    named = timeline.schedule.renamed(f"{timeline.name} ({time.name}, {size.name})")
    return replace(
        timeline,
        schedule=named,
        tick=timeline.tick / time.worth,
        grain=timeline.grain / size.worth,
        details=Settled.of(timeline),
    )
