"""Does a schedule stay within a memory limit, in every timing that its order allows?

A simulated peak holds for one set of op times. The proof here uses order alone: memory counts as
given back only where the op that needs the room is ordered behind the op that gave it back, by
their lane or by `after`. On a compute lane that is the running sum. A copy lane runs beside it: at
each compute op it may be anywhere between what that op waits for and what waits for that op.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from penstock.check.finding import Finding
from penstock.core.graph import graph_of
from penstock.core.lifetimes import level_changes
from penstock.core.schedule import Schedule
from penstock.core.table import Ticks


def memory_findings(
    schedule: Schedule, amounts: Mapping[str, Ticks], *, limit: Fraction, grain: Fraction
) -> Iterator[Finding]:
    """Devices whose proven bound is above `limit`; `grain` is what a step of `amounts` is worth."""
    at_start, at_end = level_changes(schedule, amounts)
    for device in range(schedule.shape.devices):
        levels, rows = bound(schedule, at_start, at_end, device)
        over = np.flatnonzero(levels > limit // grain)
        if over.size:
            yield _over(schedule, int(rows[over[0]]), int(levels.max()) * grain, limit)


def _over(schedule: Schedule, row: int, level: Fraction, limit: Fraction) -> Finding:
    op, device = schedule.table.op(row), int(schedule.table.device[row])
    return Finding(
        "memory",
        (op,),
        device,
        f"device {device} may hold {float(level):g}, above the limit of {float(limit):g}, first at "
        f"{op} (position {schedule.table.position(row)})",
        f"run a backward before {op}, offload or recompute, or order {op} after what frees memory",
    )


def bound(schedule: Schedule, at_start: Ticks, at_end: Ticks, device: int) -> tuple[Ticks, Ticks]:
    """Highest level that can be reached before and while each compute op of a device runs, and
    their rows."""
    rows, before, during = compute_levels(schedule, at_start, at_end, device)
    for copies in copy_lanes(schedule, device):
        way = Way.of(schedule, rows, copies, (at_start, at_end))
        passed = np.concatenate(([0], way.ended[:-1]))
        before = before + way.most(passed)
        during = during + way.most(way.ended)
    return np.maximum(before, during), rows


def compute_levels(
    schedule: Schedule, at_start: Ticks, at_end: Ticks, device: int
) -> tuple[Ticks, Ticks, Ticks]:
    """Rows of a device's compute ops, and what they hold by themselves before and while each
    runs."""
    rows = np.concatenate([np.array(lane) for lane in _lanes(schedule, device, "compute")])
    before = np.concatenate(([0], np.cumsum(at_start[rows] + at_end[rows])[:-1]))
    return rows, before, before + at_start[rows] + np.maximum(at_end[rows], 0)


def copy_lanes(schedule: Schedule, device: int) -> list[range]:
    """Rows of the lanes that run beside the compute lane of a device."""
    return _lanes(schedule, device, "copy") + _lanes(schedule, device, "collective")


def _lanes(schedule: Schedule, device: int, stream: str) -> list[range]:
    table = schedule.table
    return [
        range(*table.lane_start[lane : lane + 2].tolist())
        for lane, place in enumerate(zip(table.lane_device, table.lane_stream))
        if place == (device, stream)
    ]


class Way(NamedTuple):
    """The levels along a lane beside the compute lane, and how far along it may be.

    The lane runs in its own order, so it is always somewhere on one path: at least behind what a
    compute op waits for, at most in front of what waits for that op.
    """

    path: Ticks
    """Level before anything, and from the start and the end of each op of the lane on."""
    ended: Ticks
    """For each compute op: how many ops of the lane have ended before it starts."""
    begun: Ticks
    """For each compute op: how many ops of the lane may have begun before it ends."""

    @classmethod
    def of(
        cls, schedule: Schedule, rows: Ticks, lane: range, changes: tuple[Ticks, Ticks]
    ) -> "Way":
        """The way of a lane beside the compute ops of these rows."""
        steps = np.stack([change[lane.start : lane.stop] for change in changes], axis=1)
        path = np.concatenate(([0], np.cumsum(steps.ravel()), [0]))  # the last is never reached
        compute = range(int(rows[0]), int(rows[-1]) + 1)
        ended = np.maximum.accumulate(_awaited(schedule, compute, lane))
        held = np.maximum.accumulate(_awaited(schedule, lane, compute))
        return cls(path, ended, np.searchsorted(held, np.arange(len(rows)), side="right"))

    def most(self, passed: Ticks) -> Ticks:
        """The highest level from behind so many ops of the lane on, for each compute op."""
        ranges = np.stack([2 * passed, 2 * self.begun + 1], axis=1).ravel()
        found: Ticks = np.maximum.reduceat(self.path, ranges)[::2]
        return found


def _awaited(schedule: Schedule, readers: range, writers: range) -> Ticks:
    """For each row of a lane, how far along another lane the last row is that it waits for."""
    graph = graph_of(schedule)
    edges = slice(int(graph.start[readers.start]), int(graph.start[readers.stop]))
    reader, writer = graph.reader[edges], graph.writer[edges]
    there = (writer >= writers.start) & (writer < writers.stop)
    found = np.zeros(len(readers), np.int64)
    np.maximum.at(found, reader[there] - readers.start, writer[there] - writers.start + 1)
    return found
