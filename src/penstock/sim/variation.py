"""What becomes of a step when ops do not take the times that were planned.

No two ops on a machine take exactly the same time, and now and then one device is slower than the
others. A pipeline waits for whoever is late, and how much depends on its order. So a timeline's
schedule is played again with other times:

    vary(timeline, jitter=0.05, draws=1000)      the times of ops vary by 5 %
    slow_down(timeline, 1.2)                     one device takes 1.2 times as long, each in turn

A drawn time is the planned one times a factor whose logarithm is normally distributed: never below
zero, on average 1, with `jitter` as its standard deviation. Factors of ops are independent.
Transfers take what was planned.
"""

from contextlib import nullcontext
from math import log, sqrt
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.kernel import COMPILE_ABOVE, compile_small_work
from penstock.errors import ShapeError
from penstock.sim.details import Simulated
from penstock.sim.play import Prepared, assemble_times
from penstock.sim.timeline import Timeline

SHORTEST_TICKS = 1000
"""Ticks of the shortest op, so that a factor is kept to a part in a thousand."""
LARGEST_JITTER = 10
AT_ONCE = 64
"""Draws whose factors are made together."""


class Varied(NamedTuple):
    """Makespans of many draws, as parts of the planned one."""

    ratios: NDArray[np.float64]
    seconds: float
    """How long the draws took."""

    @property
    def mean(self) -> float:
        return float(self.ratios.mean())

    def percentile(self, part: float) -> float:
        """What so many percent of the draws do not exceed."""
        return float(np.percentile(self.ratios, part))

    @property
    def draws_per_second(self) -> float:
        return len(self.ratios) / self.seconds


def vary(timeline: Timeline, jitter: float, draws: int, seed: int = 0) -> Varied:
    """Makespans with times that vary: each draw has a factor for every op."""
    if not 0 <= jitter < LARGEST_JITTER:
        raise ShapeError(
            f"a jitter of {jitter:g}: it is the standard deviation of an op's time, as part of it",
            hint=f"give a part, such as 0.05; it is below {LARGEST_JITTER}",
        )
    if draws < 1:
        raise ShapeError(f"{draws} draws", hint="give at least 1")
    began, random = perf_counter(), np.random.default_rng(seed)
    prepared = _prepared(timeline)
    ops = len(prepared.length)
    with compile_small_work() if draws * ops > COMPILE_ABOVE else nullcontext():
        ends = [
            _makespan(prepared, factors)
            for first in range(0, draws, AT_ONCE)
            for factors in _factors(random, jitter, min(AT_ONCE, draws - first), ops)
        ]
    planned = _makespan(prepared, np.ones(1))
    return Varied(np.array(ends) / planned, perf_counter() - began)


def slow_down(timeline: Timeline, factor: float) -> list[float]:
    """The makespan, as a part of the planned one, where one device takes so many times as long;
    for each device in turn."""
    if not factor >= 1:
        raise ShapeError(
            f"a device that takes {factor:g} times as long", hint="give a factor of 1 or more"
        )
    prepared, device = _prepared(timeline), timeline.schedule.table.device
    planned = _makespan(prepared, np.ones(1))
    slow = (
        np.where(device == each, factor, 1.0) for each in range(timeline.schedule.shape.devices)
    )
    return [_makespan(prepared, factors) / planned for factors in slow]


def _prepared(timeline: Timeline) -> Prepared:
    details = timeline.details
    if not isinstance(details, Simulated):
        raise ShapeError(
            f"{timeline.name} was measured, not simulated: its ops have no planned times",
            hint="simulate its schedule",
        )
    prepared = assemble_times(timeline.schedule, details.cost, details.strands, SHORTEST_TICKS)
    if not prepared.length.any():
        raise ShapeError(f"no op of {timeline.name} takes any time", hint="give ops times")
    return prepared


def _makespan(prepared: Prepared, factors: NDArray[np.float64]) -> int:
    length = np.rint(prepared.length * factors).astype(np.int64)
    return int(prepared.play(length).end.max(initial=0))


def _factors(
    random: np.random.Generator, jitter: float, draws: int, ops: int
) -> NDArray[np.float64]:
    """Factors with a mean of 1 and a standard deviation of `jitter`."""
    spread = sqrt(log(1 + jitter**2))
    return random.lognormal(-(spread**2) / 2, spread, (draws, ops))
