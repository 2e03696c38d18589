"""Does a schedule stay within a memory limit, in every timing that its order allows?

A simulated peak holds for one set of op times. The proof here uses order alone: memory counts as
given back only where the op that needs the room is ordered behind the op that gave it back, by
their lane or by `after`. On a compute lane that is the running sum; a copy lane that frees memory
while the compute lane runs on counts only where the compute lane waits for it.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from penstock.check.finding import Finding
from penstock.core.graph import graph_of
from penstock.core.lifetimes import level_changes
from penstock.core.schedule import Schedule

Ticks = NDArray[np.int64]


def memory(
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


def bound(
    schedule: Schedule, at_start: Ticks, at_end: Ticks, device: int
) -> tuple[Ticks, NDArray[np.int64]]:
    """Highest level that can be reached while each compute op of a device runs, and their rows."""
    table = schedule.table
    lanes = [lane for lane, at in enumerate(table.lane_device) if at == device]
    compute = [lane for lane in lanes if table.lane_stream[lane] == "compute"]
    rows = np.concatenate([_rows(schedule, lane) for lane in compute])
    change = np.zeros(len(rows) + 1, np.int64)
    for lane in lanes:
        if lane not in compute:
            _add_copies(schedule, lane, (rows, at_start, at_end), change)
    before = np.concatenate(([0], np.cumsum(at_start[rows] + at_end[rows])[:-1]))
    held = before + np.cumsum(change)[:-1]
    return held + at_start[rows] + np.maximum(at_end[rows], 0), rows


def _rows(schedule: Schedule, lane: int) -> NDArray[np.int64]:
    start = schedule.table.lane_start
    return np.arange(start[lane], start[lane + 1], dtype=np.int64)


def _add_copies(
    schedule: Schedule, lane: int, of: tuple[NDArray[np.int64], Ticks, Ticks], change: Ticks
) -> None:
    """Place what a copy lane takes and frees at the compute ops it is ordered against.

    What it takes counts from behind the last compute op that it waits for (as early as it may
    happen); what it frees counts from the first compute op that waits for it (as late).
    """
    rows, at_start, at_end = of
    place = {int(row): number for number, row in enumerate(rows)}
    graph = graph_of(schedule)
    copies = _rows(schedule, lane)
    waiting = _first_waiting(graph.reader, graph.writer, place, copies)
    earliest = 0
    for row in copies:
        for edge in range(graph.start[row], graph.start[row + 1]):
            earliest = max(earliest, place.get(int(graph.writer[edge]), -1) + 1)
        change[earliest] += at_start[row]
        change[waiting[int(row)]] += min(int(at_end[row]), 0)


def _first_waiting(
    reader: NDArray[np.int32],
    writer: NDArray[np.int32],
    place: dict[int, int],
    copies: NDArray[np.int64],
) -> dict[int, int]:
    """For each copy op the first compute op known to start after it: its own reader, or that of a
    later op of the same copy lane."""
    never = len(place)
    first = dict.fromkeys((int(row) for row in copies), never)
    for read, wrote in zip(reader.tolist(), writer.tolist()):
        if wrote in first and read in place:
            first[wrote] = min(first[wrote], place[read])
    best = never
    for row in reversed(copies.tolist()):
        best = first[row] = min(best, first[row])
    return first
