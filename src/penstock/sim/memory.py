"""Memory over time: what rows add and take away, summed up along time.

A buffer is taken at the start of its writer and given back at the end of its last reader; at equal
times giving back comes first. Along one lane those moments are in order by themselves, so the peak
of a device with a single lane needs no times at all.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import BUFFERS
from penstock.core.groups import groups_of
from penstock.core.kernel import kernel
from penstock.core.lifetimes import GIVEN, level_changes, size_factors
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Run
from penstock.core.table import LETTERS, Ticks
from penstock.cost.model import SIZES, Cost, UnitCost
from penstock.cost.shares import refuse_overflow, share_column, shares_of
from penstock.sim.instants import turns_of
from penstock.sim.timeline import Curve


def kind_changes(schedule: Schedule, cost: UnitCost) -> tuple[Ticks, Ticks, Fraction]:
    """What each kind adds at its start and its end, for a full share, and what a step is worth."""
    grain = common_tick([cost.size(size) for size in SIZES])
    counts = [int(cost.size(size) / grain) for size in SIZES]
    # Every row adds or takes at most all sizes at once, and all of it may be alive together.
    refuse_overflow(len(schedule.table) * sum(counts) * shares_of(schedule.shape).most)
    plus, minus = np.zeros((2, len(LETTERS)), np.int64)
    for count, size in zip(counts, SIZES):
        factors = size_factors(size)
        plus, minus = plus + np.int64(count) * factors.start, minus + np.int64(count) * factors.end
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


class SizeChanges(NamedTuple):
    """Level changes of each row at its start and its end, for each size."""

    of_size: dict[str, tuple[Ticks, Ticks]]
    grain: Fraction
    """What one step is worth."""

    @property
    def whole(self) -> tuple[Ticks, Ticks]:
        """Those of all sizes together."""
        start, end = (sum(column) for column in zip(*self.of_size.values()))
        return np.asarray(start), np.asarray(end)


def changes_by_size(schedule: Schedule, cost: Cost) -> SizeChanges:
    """What rows of a schedule add and take away, size by size."""
    amounts, grain = amounts_of(schedule, cost)
    return SizeChanges(
        {size: level_changes(schedule, {size: held}) for size, held in amounts.items()}, grain
    )


def levels_at_peaks(schedule: Schedule, found: SizeChanges, done: Run) -> dict[str, list[int]]:
    """What buffers of each size hold on each device when it holds most, in steps of one."""
    changes, grain = found
    start, end = found.whole
    each = np.array([np.stack(columns, axis=1).ravel() for columns in changes.values()])
    whole, levels = each.sum(axis=0), []
    for order, rows in change_orders(schedule, start, end, (done.start, done.end)):
        order = (2 * rows[:, None] + (0, 1)).ravel()[order]
        past = order[: int(np.cumsum(whole[order]).argmax()) + 1] if len(order) else order
        levels.append([int(level * grain) for level in each[:, past].sum(axis=1).tolist()])
    return dict(zip(changes, map(list, zip(*levels))))


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
    by_kind = isinstance(cost, UnitCost) and not schedule.shape.kind_share
    if isinstance(cost, UnitCost) and by_kind and not set(cost.sized) & set(SHARED_SIZES):
        plus, minus, grain = kind_changes(schedule, cost)
        share = share_column(schedule)
        columns = (table.lane_start, table.lane_device, table.kind, share, plus, minus)
        _kind_peaks(len(table), *columns, peak)
        return peak, grain / shares_of(schedule.shape).scale
    at_start, at_end, grain = changes_of(schedule, cost)
    _peaks(len(table), table.lane_start, table.lane_device, at_start, at_end, peak)
    return peak, grain


SHARED_SIZES = (*(b.size for b in BUFFERS.values() if b.per == "microbatch" and b.size), GIVEN)
"""Sizes of buffers that all slices of a microbatch share, or that only some stages have; the others
follow from kind and share."""


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
    found = []
    for order, rows in change_orders(schedule, at_start, at_end, times):
        time, change = (_beside(*each, rows) for each in (times, (at_start, at_end)))
        found.append(_curve(time.ravel()[order], change.ravel()[order]))
    return tuple(found)


def change_orders(
    schedule: Schedule, at_start: Ticks, at_end: Ticks, times: tuple[Ticks, Ticks]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For every device the order of its changes in time, and its rows; each has two changes."""
    table = schedule.table
    turns = turns_of(schedule, at_start, at_end, times)
    alone = not len(groups_of(schedule).rows)
    lanes = np.bincount(table.lane_device, minlength=schedule.shape.devices)
    for device in range(schedule.shape.devices):
        rows = np.flatnonzero(table.device == device)
        change = _beside(at_start, at_end, rows)
        ordered = alone and lanes[device] <= 1  # along one lane changes are in order by themselves
        if ordered:
            yield np.arange(change.size), rows
        else:
            yield _in_time(_beside(*times, rows), _beside(*turns, rows), change), rows


def _beside(at_start: Ticks, at_end: Ticks, rows: NDArray[np.int64]) -> Ticks:
    """Starts and ends of rows, side by side."""
    return np.stack([at_start[rows], at_end[rows]], axis=1)


def _in_time(time: Ticks, turn: Ticks, change: Ticks) -> NDArray[np.int64]:
    """Order of starts and ends of rows on several lanes: in each turn of a moment the ends, what is
    given back first, and then the starts."""
    is_start = np.tile([True, False], len(time))
    return np.lexsort((change.ravel() > 0, is_start, turn.ravel(), time.ravel()))


def _curve(time: Ticks, change: Ticks) -> Curve:
    """Levels after changes: of several at one time the last, and the highest if it sticks out."""
    moves = change != 0
    time, level = time[moves], np.cumsum(change[moves])
    if not len(time):
        return Curve(time, level)
    first = np.flatnonzero(np.append(True, time[1:] != time[:-1]))
    last = np.append(first[1:], len(time)) - 1
    highest, final = np.maximum.reduceat(level, first), level[last]
    before = np.append(0, final[:-1])
    spike = (highest > final) & (highest > before)
    keep = np.stack([spike, np.ones(len(first), np.bool_)], axis=1).ravel()
    both = np.stack([highest, final], axis=1).ravel()
    return Curve(np.repeat(time[first], 2)[keep], both[keep])
