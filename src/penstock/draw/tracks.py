"""Which ops stand in which row of a picture.

A lane is one row, unless ops in it overlap: braided pairs run at the same time. Overlapping ops are
spread over strands, so that within one strand nothing overlaps.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.table import Ints, Ticks
from penstock.sim.timeline import Timeline


class Track(NamedTuple):
    """One strand of one lane: its rows in the schedule's table, ascending in time."""

    device: int
    stream: str
    strand: int
    strands: int
    """How many strands the lane has."""
    rows: Ints
    alone: NDArray[np.bool_]
    """Rows that share their time with no other op of the lane."""


def tracks(timeline: Timeline) -> Iterator[Track]:
    """All tracks, device by device."""
    table = timeline.schedule.table
    for lane, stream in enumerate(table.lane_stream):
        first, end = int(table.lane_start[lane]), int(table.lane_start[lane + 1])
        strand = strands(timeline.start[first:end], timeline.end[first:end])
        free = stands_alone(timeline.start[first:end], timeline.end[first:end])
        count = int(strand.max()) + 1
        for number in range(count):
            here = np.flatnonzero(strand == number).astype(np.int32)
            rows = here + np.int32(first)
            yield Track(int(table.lane_device[lane]), stream, number, count, rows, free[here])


def strands(start: Ticks, end: Ticks) -> Ints:
    """A strand for each span, in order of start: the first one that is free."""
    chosen = np.zeros(len(start), np.int32)
    if len(start) == 0 or (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return chosen
    free: list[int] = []
    for place in np.argsort(start, kind="stable").tolist():
        strand = next((s for s, at in enumerate(free) if at <= start[place]), len(free))
        free[strand : strand + 1] = [int(end[place])]
        chosen[place] = strand
    return chosen


def stands_alone(start: Ticks, end: Ticks) -> NDArray[np.bool_]:
    """Whether each span shares its time with no other."""
    order = np.argsort(start, kind="stable")
    before = np.maximum.accumulate(end[order])[:-1]
    free = np.ones(len(start), bool)
    free[order[1:]] = start[order[1:]] >= before
    free[order[:-1]] &= end[order[:-1]] <= start[order[1:]]
    return free
