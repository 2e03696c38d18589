"""The fast clock, for lanes whose ops wait for at most one op elsewhere.

The clock of the graph (core/scoreboard.py) looks at every edge of every op. In most pipelines one
look is enough: what an op reads of its own stage stands before it in its lane, and the input or the
gradient that is left comes from one op of a neighbouring stage. Then what an op waits for, how long
it takes and what it holds is known from its kind and its stage, and a loop over three columns finds
times and peaks. The simulator uses it for schedules that are proven, and searches use it for orders
of which they try thousands; what waits for what comes from the meaning table for both.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.graph import reads_of
from penstock.core.kernel import kernel, part
from penstock.core.lifetimes import size_factors
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import CODE

Cells = NDArray[np.int64]
"""By kind and stage, what holds for all ops of that kind on that stage, in six columns:"""
READS, WRITES, LATE, TIME, PLUS, MINUS = range(6)
"""Place of the op it waits for, and of itself (those of unit 0; -1 for none); ticks from the end of
the first to the start of the second; its own ticks; what it takes at its start and at its end."""


def chain_cells(
    letters: str, device: Sequence[int], units: int, hop: int, times: Any, sizes: Mapping[str, Any]
) -> Cells:
    """Cells of ops whose stages live on these devices, with waits from the meaning table.

    `times` are by kind and stage, `sizes` of each name by stage; one for all will do. Units of one
    kind and stage must stand in each lane in an order that passes keys and values on: that wait is
    left to the lane.
    """
    stages, kinds = len(device), len(letters)
    waits, home = _waits(letters, stages), np.tile(np.asarray(device), kinds)
    own = np.arange(len(waits))
    columns = np.zeros((kinds * stages, 6), np.int64)
    columns[:, READS] = np.where(waits >= 0, waits * units, -1)
    columns[:, WRITES] = np.where(np.isin(own, waits), own * units, -1)
    columns[:, LATE] = hop * ((waits >= 0) & (home[waits] != home))
    cells = columns.reshape(kinds, stages, 6)
    cells[:, :, TIME] = times
    codes = [CODE[letter] for letter in letters]
    for size, amount in sizes.items():
        factors = size_factors(size)
        cells[:, :, PLUS] += factors.start[codes, None] * amount
        cells[:, :, MINUS] += factors.end[codes, None] * amount
    return cells


@lru_cache(maxsize=256)
def _waits(letters: str, stages: int) -> NDArray[np.int64]:
    """For each kind and stage the kind and stage that it waits for, numbered alike; -1 for none.

    Read off one unit. Of several things an op reads only the one that is written last counts: the
    others stand on the way to it.
    """
    ops = [(kind, stage, 0, 0) for kind in letters for stage in range(stages)]
    graph = reads_of(Schedule.of("one unit", Shape(1, stages, (1,)), [ops]))
    writers: list[set[int]] = [set() for _ in ops]
    for reader, writer in zip(graph.reader.tolist(), graph.writer.tolist()):
        writers[reader].add(writer)
    ways = [_way(row, writers) for row in range(len(ops))]
    found = [max(written, key=lambda row: len(ways[row]), default=-1) for written in writers]
    for row, last in enumerate(found):
        assert writers[row] <= {last, *ways[last]} or last < 0, "one wait is not enough"
    return np.array(found, np.int64)


def _way(row: int, writers: list[set[int]]) -> set[int]:
    """All rows that must have run before a row."""
    way, ahead = set[int](), [row]
    while ahead:
        ahead = [writer for one in ahead for writer in writers[one] - way]
        way.update(ahead)
    return way


@kernel
def play_chain(
    lane_start: Any, lane_stage: Any, kind: Any, stage: Any, unit: Any, cells: Any, share: Any,
    ready: Any, end: Any, peak: Any,
) -> Any:  # fmt: skip
    """The loop below as a kernel of its own."""
    return advance(lane_start, lane_stage, kind, stage, unit, cells, share, ready, end, peak)


@part
def advance(
    lane_start: Any, lane_stage: Any, kind: Any, stage: Any, unit: Any, cells: Any, share: Any,
    ready: Any, end: Any, peak: Any,
) -> Any:  # fmt: skip
    """End of every row and peak of every lane; the number of rows that ran.

    Visit the lanes in turn; each runs until what its head waits for has not ended yet. `lane_stage`
    is the stage of a lane that has only one, or -1. Times and sizes are multiplied by the `share`
    of the unit, where shares are given; `ready` has a place for every unit of every cell.
    """
    lanes, shared, weight = len(lane_stage), len(share) > 0, 1
    cursor, clock = lane_start[:-1].copy(), np.zeros(lanes, np.int64)
    level, done, moved = np.zeros(lanes, np.int64), 0, True
    ready[:], peak[:] = -1, 0
    while moved:
        moved = False
        for lane in range(lanes):
            head, row, now = cursor[lane], cursor[lane], clock[lane]
            held, most = level[lane], peak[lane]
            here = lane_stage[lane]
            mixed = here < 0
            while row < lane_start[lane + 1]:
                if mixed:
                    here = stage[row]
                cell, own = cells[kind[row], here], unit[row]
                place = cell[READS]
                if place >= 0:
                    there = ready[place + own]
                    if there < 0:
                        break
                    now = max(now, there + cell[LATE])
                if shared:
                    weight = share[own]
                now += cell[TIME] * weight
                end[row] = now
                held += cell[PLUS] * weight
                most = max(most, held)
                held += cell[MINUS] * weight
                most = max(most, held)
                place = cell[WRITES]
                if place >= 0:
                    ready[place + own] = now
                row += 1
            if row != head:
                moved = True
                done += row - head
                cursor[lane], clock[lane] = row, now
                level[lane], peak[lane] = held, most
    return done
