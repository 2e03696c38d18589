"""What every op waits for, derived from the meaning table for a whole schedule at once.

Most reads are satisfied by lane order: the writer stands earlier in the same lane. The graph keeps
only the others, one edge each: reads from another lane (which may become transfers), parts of a
collective (which takes its time after the last part, whoever wrote that), and the two ways a
schedule can be wrong, a writer that stands behind its reader and a read that nobody writes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.gangs import helping_rows
from penstock.core.homes import home_edges
from penstock.core.kernel import kernel
from penstock.core.loans import loan_edges
from penstock.core.named_rows import after_rows
from penstock.core.rules import ABSENT, NAMES, Compiled, compile_merged, compile_rules
from penstock.core.schedule import Schedule
from penstock.core.table import Ints

AFTER = len(NAMES)
"""Stands in the buffer column of an edge that is only an order (`after`), without data."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Edges sorted by reader; `start[row] : start[row + 1]` are the edges of a row."""

    start: Ints
    reader: Ints
    writer: Ints
    """Row that writes what is read; -1 where nobody does."""
    buffer: Ints
    """Index into the buffer names, or AFTER."""

    def name(self, edge: int) -> str:
        """Name of the buffer an edge reads."""
        return "after" if self.buffer[edge] == AFTER else NAMES[int(self.buffer[edge])]


def graph_of(schedule: Schedule) -> Graph:
    """The graph of a schedule, built once and kept with it."""
    return schedule.derive("graph", _open_reads)


def _open_reads(schedule: Schedule) -> Graph:
    """The reads that lane order leaves open."""
    merged = compile_merged(schedule.shape, schedule.table.kinds)
    return _build(schedule, merged, schedule.table.lane_start)


def reads_of(schedule: Schedule) -> Graph:
    """Every read, also those that lane order satisfies: for pictures, which show them all."""
    alone = np.arange(len(schedule.table) + 1, dtype=np.int32)
    return _build(schedule, compile_rules(schedule.shape, schedule.table.kinds), alone)


def writers_of(schedule: Schedule, compiled: Compiled) -> Ints:
    """First row that writes each buffer instance, -1 for none, in the compiled numbering."""
    writers = np.full(compiled.room, -1, np.int32)
    _write(len(schedule.table), *columns_of(schedule), *compiled.writes, writers)
    return writers


def columns_of(schedule: Schedule) -> tuple[Any, ...]:
    """What the loops over rows and rules read. Members of a gang away from home have no unit: they
    read and write nothing of it."""
    table, shape, unit = schedule.table, schedule.shape, schedule.unit
    counts = np.array(shape.slices, np.int32)
    if schedule.gangs:
        unit = np.where(helping_rows(schedule), np.int32(-1), unit)
    return table.kind, table.stage, table.mb, table.slice, unit, counts, shape.units


def _build(schedule: Schedule, compiled: Compiled, lane_start: Ints) -> Graph:
    """The graph of the reads that order inside lanes starting at these rows leaves open."""
    size, reads = len(schedule.table), compiled.reads
    writers = writers_of(schedule, compiled)
    visits = np.add.reduceat(np.append(np.maximum(reads.shards, 1), 0), reads.start[:-1])
    visits[reads.start[:-1] == reads.start[1:]] = 0
    room = int(np.bincount(schedule.table.kind, minlength=len(visits)) @ visits)
    start = np.zeros(size + 1, np.int32)
    edges = np.empty((3, room), np.int32)
    columns = columns_of(schedule)
    found = _read(size, *columns, lane_start, *reads, writers, start, edges)
    reader, writer, buffer = edges[:, :found]
    extra = _extra_edges(schedule)
    if len(extra):
        reader, writer, buffer, start = _merge((reader, writer, buffer), extra, size)
    return Graph(start, reader, writer, buffer)


@kernel
def _write(
    kind: Any, stage: Any, mb: Any, slice: Any, unit: Any, counts: Any, units: Any,
    line_start: Any, place: Any, newer: Any, step: Any, shards: Any, buffer: Any, writers: Any,
) -> None:  # fmt: skip
    """Note for every buffer instance the first row that writes it."""
    for row in range(len(kind)):
        if unit[row] < 0:
            continue
        for line in range(line_start[kind[row]], line_start[kind[row] + 1]):
            index = place[line, stage[row]]
            if index < 0:
                continue
            if step[line] != 0 and not 0 <= slice[row] + step[line] < counts[mb[row]]:
                continue
            index += unit[row] + step[line]
            if writers[index] < 0:
                writers[index] = row


@kernel
def _read(
    kind: Any, stage: Any, mb: Any, slice: Any, unit: Any, counts: Any, units: Any,
    lane_start: Any, line_start: Any, place: Any, newer: Any, step: Any, shards: Any, buffer: Any,
    writers: Any, start: Any, edges: Any,
) -> int:  # fmt: skip
    """Fill in an edge for every read that lane order does not satisfy; return their number."""
    found = lane = begin = 0
    for row in range(len(kind)):
        start[row] = found
        while row >= lane_start[lane + 1]:
            lane += 1
            begin = lane_start[lane]
        if unit[row] < 0:
            continue
        for line in range(line_start[kind[row]], line_start[kind[row] + 1]):
            index = place[line, stage[row]]
            if index == ABSENT:
                continue
            if step[line] != 0 and not 0 <= slice[row] + step[line] < counts[mb[row]]:
                continue
            newest = newer[line, stage[row]]
            at = unit[row] + step[line]
            for _ in range(max(shards[line], 1)):
                writer = writers[index + at] if index >= 0 else -1
                if newest >= 0 and writers[newest + at] >= 0:
                    writer = writers[newest + at]
                if writer < begin or writer >= row or shards[line] > 0:
                    edges[0, found] = row
                    edges[1, found] = writer
                    edges[2, found] = buffer[line]
                    found += 1
                at += units
    start[len(kind)] = found
    return found


def _extra_edges(schedule: Schedule) -> NDArray[np.int32]:
    """Edges that do not follow from ops of units, as rows of (reader, writer, buffer)."""
    edges = [home_edges(schedule), loan_edges(schedule), _after_edges(schedule)]
    return np.concatenate(edges)


def _after_edges(schedule: Schedule) -> NDArray[np.int32]:
    """Explicit order, as (reader, writer, AFTER); ops that do not exist are the checker's."""
    if schedule.after and schedule.table.repeats:
        return np.array(_after_each(schedule), np.int32).reshape(-1, 3)
    rows = after_rows(schedule) if schedule.after else np.zeros((0, 2), np.int64)
    edges = np.full((len(rows), 3), AFTER, np.int32)
    edges[:, :2] = rows
    return edges[(rows >= 0).all(axis=1)]


def _after_each(schedule: Schedule) -> list[tuple[int, int, int]]:
    """The same where some op has several rows: all of its rows wait, or are waited for."""
    rows = schedule.table.rows_by_op
    return [
        (reader, writer, AFTER)
        for op, earlier in schedule.after
        if op in rows and earlier in rows
        for reader in rows[op]
        for writer in rows[earlier]
    ]


def _merge(
    edges: tuple[NDArray[np.int32], ...], extra: NDArray[np.int32], size: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Edges from the table and others, sorted by reader again."""
    both = np.concatenate([np.stack(edges), extra.T], axis=1)
    start, merged = np.zeros(size + 1, np.int32), np.empty_like(both)
    _sort_by_reader(size, both, start, merged)
    return merged[0], merged[1], merged[2], start


@kernel
def _sort_by_reader(edges: Any, start: Any, merged: Any) -> None:
    """Counting sort of edges by the row that reads."""
    size = len(start) - 1
    for edge in range(edges.shape[1]):
        start[edges[0, edge] + 1] += 1
    for row in range(size):
        start[row + 1] += start[row]
    fill = start[:size].copy()
    for edge in range(edges.shape[1]):
        place = fill[edges[0, edge]]
        fill[edges[0, edge]] += 1
        for column in range(3):
            merged[column, place] = edges[column, edge]
