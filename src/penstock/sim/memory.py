"""Memory over time: what rows add and take away, summed up along time.

A buffer is taken at the start of its writer and given back at the end of its last reader; at equal
times giving back comes first. Along one lane those moments are in order by themselves, so the peak
of a device with a single lane needs no times at all.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.groups import groups_of
from penstock.core.kernel import kernel
from penstock.core.lifetimes import level_changes, size_factors
from penstock.core.meaning import BUFFERS
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Run
from penstock.core.table import LETTERS
from penstock.cost.model import (
    SIZES,
    Cost,
    UnitCost,
    refuse_overflow,
    share_column,
    shares_of,
)
from penstock.sim.timeline import Curve

Ticks = NDArray[np.int64]


def kind_changes(cost: UnitCost) -> tuple[Ticks, Ticks, Fraction]:
    """What each kind adds at its start and its end, for a full share, and what a step is worth."""
    grain = common_tick([cost.size(size) for size in SIZES])
    counts = [int(cost.size(size) / grain) for size in SIZES]
    refuse_overflow(max(counts))
    plus, minus = np.zeros((2, len(LETTERS)), np.int64)
    for count, size in zip(counts, SIZES):
        factors = size_factors(size)
        plus, minus = plus + count * factors.start, minus + count * factors.end
    return plus, minus, grain


def amounts_of(schedule: Schedule, cost: Cost) -> tuple[dict[str, Ticks], Fraction]:
    """What buffers of each size hold, all in the same steps, and what one step is worth."""
    scaled = {size: cost.amounts(schedule, size) for size in cost.sized}
    shares = [share.denominator for _, share in schedule.shares]
    grain = common_tick([amount.tick for amount in scaled.values()])
    grain = common_tick([grain, *(grain / share for share in shares)])
    amounts: dict[str, Ticks] = {}
    for size, amount in scaled.items():
        factor = int(amount.tick / grain)
        refuse_overflow(factor * int(amount.ticks.max(initial=0)) * len(amount.ticks))
        amounts[size] = amount.ticks if factor == 1 else amount.ticks * factor
    return amounts, grain


def changes_of(schedule: Schedule, cost: Cost) -> tuple[Ticks, Ticks, Fraction]:
    """Level changes of each row at its start and its end, and what one step is worth."""
    amounts, grain = amounts_of(schedule, cost)
    return *level_changes(schedule, amounts), grain


def common_tick(ticks: list[Fraction]) -> Fraction:
    """The largest tick of which all given ones are multiples."""
    common = Fraction(0)
    for tick in ticks:
        common = _gcd(common, tick)
    return common or Fraction(1)


def _gcd(a: Fraction, b: Fraction) -> Fraction:
    while b:
        a, b = b, a % b
    return a


def peaks(schedule: Schedule, cost: Cost, done: Run) -> tuple[Ticks, Fraction]:
    """Largest level of each device, and what one step is worth."""
    table = schedule.table
    lanes = np.bincount(table.lane_device, minlength=schedule.shape.devices)
    peak = np.zeros(schedule.shape.devices, np.int64)
    if lanes.max() > 1 or len(groups_of(schedule).rows):
        at_start, at_end, grain = changes_of(schedule, cost)
        found = curves(schedule, at_start, at_end, (done.start, done.end))
        return np.array([curve.level.max(initial=0) for curve in found], np.int64), grain
    if isinstance(cost, UnitCost) and not set(cost.sized) & set(SHARED_SIZES):
        plus, minus, grain = kind_changes(cost)
        share = share_column(schedule)
        columns = (table.lane_start, table.lane_device, table.kind, share, plus, minus)
        _kind_peaks(len(table), *columns, peak)
        return peak, grain / shares_of(schedule.shape).scale
    at_start, at_end, grain = changes_of(schedule, cost)
    _peaks(len(table), table.lane_start, table.lane_device, at_start, at_end, peak)
    return peak, grain


SHARED_SIZES = tuple(b.size for b in BUFFERS.values() if b.per == "microbatch" and b.size)
"""Sizes of buffers that all slices of a microbatch share; the others follow from kind and share."""


@kernel
def _peaks(lane_start: Any, lane_device: Any, at_start: Any, at_end: Any, peak: Any) -> None:
    """Running sum along each lane."""
    for lane in range(len(lane_device)):
        level = highest = 0
        for row in range(lane_start[lane], lane_start[lane + 1]):
            level += at_start[row]
            highest = max(highest, level)
            level += at_end[row]
            highest = max(highest, level)
        peak[lane_device[lane]] = highest


@kernel
def _kind_peaks(
    lane_start: Any, lane_device: Any, kind: Any, share: Any, plus: Any, minus: Any, peak: Any
) -> None:
    """The same where a row's kind and share say what it adds and takes away."""
    for lane in range(len(lane_device)):
        level = highest = 0
        for row in range(lane_start[lane], lane_start[lane + 1]):
            level += plus[kind[row]] * share[row]
            highest = max(highest, level)
            level += minus[kind[row]] * share[row]
            highest = max(highest, level)
        peak[lane_device[lane]] = highest


def curves(
    schedule: Schedule, at_start: Ticks, at_end: Ticks, times: tuple[Ticks, Ticks]
) -> tuple[Curve, ...]:
    """Level of every device from change to change."""
    table = schedule.table
    found = []
    for device in range(schedule.shape.devices):
        rows = np.flatnonzero(table.device == device)
        found.append(_curve(at_start[rows], at_end[rows], times[0][rows], times[1][rows]))
    return tuple(found)


def _curve(at_start: Ticks, at_end: Ticks, start: Ticks, end: Ticks) -> Curve:
    time = np.concatenate([start, end])
    change = np.concatenate([at_start, at_end])
    moves = change != 0
    time, change = time[moves], change[moves]
    order = np.lexsort((change > 0, time))
    time, level = time[order], np.cumsum(change[order])
    # At one time all giving back comes first, so the last level there is also the highest.
    last = np.append(time[1:] != time[:-1], np.ones(min(len(time), 1), np.bool_))
    return Curve(time[last], level[last])
