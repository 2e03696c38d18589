"""What has to move between devices: derived from the graph, once per buffer and receiver.

A read whose writer stands on another device is a transfer. Two readers of one buffer on one device
share it. What a collective brings is none. On each directed edge between devices the transfers of
one payload form a channel, in the order in which the sender produces them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import COLLECTIVE
from penstock.core.graph import AFTER, graph_of
from penstock.core.kernel import kernel
from penstock.core.rules import NAMES, NUMBER_OF
from penstock.core.schedule import Schedule
from penstock.core.table import Ints


@dataclass(frozen=True, eq=False)
class Moves:
    """Columns of the transfers, sorted by the row that writes: lane order of the sender."""

    writer: Ints
    reader: Ints
    """First row that reads it on the receiving device."""
    last_reader: Ints
    """Last row that reads it there."""
    buffer: Ints
    start: Ints
    """`start[row] : start[row + 1]` are the transfers that a row writes."""
    of_edge: Ints
    """Transfer of each edge of the graph; -1 for edges inside a device."""

    def payload(self, move: int) -> str:
        """Name of the buffer that a transfer carries."""
        return NAMES[int(self.buffer[move])]

    def of_rows(self, rows: Sequence[int]) -> list[range]:
        """The transfers that each of several rows writes."""
        return list(map(range, self.start[rows].tolist(), self.start[1:][rows].tolist()))


_JOINED = np.zeros(AFTER + 1, np.bool_)
_JOINED[[NUMBER_OF[name] for name in COLLECTIVE]] = True
"""Whether a collective brings what an edge is for."""

_UNSENT = _JOINED.copy()
_UNSENT[AFTER] = True
"""Whether no message belongs to an edge: it is order alone, or a collective brings its buffer."""


def joined_edges(schedule: Schedule) -> NDArray[np.int64]:
    """Edges of the graph whose buffer a collective brings."""
    return np.flatnonzero(_JOINED[graph_of(schedule).buffer])


def moves_of(schedule: Schedule) -> Moves:
    """The transfers of a schedule, derived once and kept with it."""
    return schedule.derive("moves", _build)


def _build(schedule: Schedule) -> Moves:
    graph, table = graph_of(schedule), schedule.table
    size, edges = len(table), len(graph.reader)
    columns = np.empty((4, edges), np.int32)
    start = np.zeros(size + 1, np.int32)
    of_edge = np.full(edges, -1, np.int32)
    count = _gather(
        size, graph.reader, graph.writer, graph.buffer, table.device, table.stage, _UNSENT,
        start, of_edge, columns,
    )  # fmt: skip
    writer, reader, last_reader, buffer = columns[:, :count]
    return Moves(writer, reader, last_reader, buffer, start, of_edge)


@kernel
def _gather(
    reader: Any, writer: Any, buffer: Any, device: Any, stage: Any, unsent: Any,
    start: Any, of_edge: Any, columns: Any,
) -> int:  # fmt: skip
    """Sort the edges between devices by writer (counting sort) and fold equal ones together."""
    size = len(start) - 1
    crossing = np.empty(len(reader), np.bool_)
    for edge in range(len(reader)):
        remote = device[max(writer[edge], 0)] != device[reader[edge]]
        crossing[edge] = remote and writer[edge] >= 0 and not unsent[buffer[edge]]
        if crossing[edge]:
            start[writer[edge] + 1] += 1
    for row in range(size):
        start[row + 1] += start[row]
    by_writer = np.empty(start[size], np.int32)
    fill = start[:size].copy()
    for edge in range(len(reader)):
        if crossing[edge]:
            by_writer[fill[writer[edge]]] = edge
            fill[writer[edge]] += 1
    count = 0
    begin = 0
    for row in range(size):
        stop, first = start[row + 1], count
        for place in range(begin, stop):
            edge = by_writer[place]
            move = first
            while move < count and not (
                columns[3, move] == buffer[edge]
                and device[columns[1, move]] == device[reader[edge]]
                and stage[columns[1, move]] == stage[reader[edge]]  # else another skip edge
            ):
                move += 1
            if move == count:
                columns[0, move] = row
                columns[1, move] = reader[edge]
                columns[3, move] = buffer[edge]
                count += 1
            columns[2, move] = reader[edge]  # edges come in order of their readers
            of_edge[edge] = move
        begin = stop
        start[row] = first
    start[size] = count
    return count
