"""Runs lanes against the graph: every op starts when its lane and all it reads are there.

With the order fixed, time is a longest path, and one pass finds it: each lane advances while the
op at its head has everything. The same pass is the deadlock proof: lanes that cannot advance are
stuck, whatever the op times are, because ops only ever add what others wait for.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.graph import graph_of
from penstock.core.groups import groups_of
from penstock.core.kernel import kernel
from penstock.core.schedule import Schedule
from penstock.core.table import Ints
from penstock.core.transfers import moves_of

Ticks = NDArray[np.int64]


class Run(NamedTuple):
    """End of every row, and how far each lane came."""

    length: Ticks
    end: Ticks
    """-1 for rows that never ran."""
    cursor: Ints
    """First row of each lane that did not run."""
    departure: Ticks
    """When each transfer left, where links were given."""
    arrival: Ticks
    """When each transfer reached its receiver, where links were given."""

    @property
    def start(self) -> Ticks:
        """Start of every row that ran."""
        return self.end - self.length

    def stuck(self, schedule: Schedule) -> bool:
        return bool((self.cursor < schedule.table.lane_start[1:]).any())


class Wires(NamedTuple):
    """What each transfer costs: its link, how long it occupies it, and its latency."""

    link: Ints
    busy: Ticks
    latency: Ticks


_NONE = np.zeros(0, np.int64)


def run(schedule: Schedule, length: Ticks, delay: Ticks = _NONE) -> Run:
    """Play a schedule: row i takes `length[i]`, and edge j of the graph `delay[j]` if given."""
    table, graph = schedule.table, graph_of(schedule)
    if len(groups_of(schedule).rows):
        return run_wired(schedule, length, delay)
    end, cursor = np.full(len(table), -1, length.dtype), table.lane_start[:-1].copy()
    _play(len(table), table.lane_start, graph.start, graph.writer, delay, length, cursor, end)
    return Run(length, end, cursor, _NONE, _NONE)


def run_wired(
    schedule: Schedule, length: Ticks, delay: Ticks = _NONE, wires: Wires | None = None
) -> Run:
    """Play a schedule with ops that run together, and with links that transfers occupy."""
    table, graph, groups = schedule.table, graph_of(schedule), groups_of(schedule)
    end, cursor = np.full(len(table), -1, length.dtype), table.lane_start[:-1].copy()
    moves = moves_of(schedule)
    links = wires or Wires(_NONE.astype(np.int32), _NONE, _NONE)
    departure = np.full(len(links.link), -1, np.int64)
    arrival = departure.copy()
    free = np.zeros(int(links.link.max(initial=-1)) + 1, np.int64)
    _play_together(
        len(table), table.lane_start, table.lane, *groups, graph.start, graph.writer, delay,
        moves.of_edge, moves.start, *links, free, length, cursor, end, departure, arrival,
    )  # fmt: skip
    return Run(length, end, cursor, departure, arrival)


@kernel
def _play(
    lane_start: Any, edge_start: Any, edge_writer: Any, delay: Any,
    length: Any, cursor: Any, end: Any,
) -> None:  # fmt: skip
    """Visit the lanes in turn; let each run until its head has to wait; stop when none moved."""
    lanes, delayed = len(cursor), len(delay) > 0
    clock = np.zeros(lanes, np.int64)
    moved = True
    while moved:
        moved = False
        for lane in range(lanes):
            head, row, now = cursor[lane], cursor[lane], clock[lane]
            while row < lane_start[lane + 1]:
                ready = now
                for edge in range(edge_start[row], edge_start[row + 1]):
                    writer = edge_writer[edge]
                    there = end[writer] if writer >= 0 else -1
                    if there < 0:
                        ready = -1
                        break
                    if delayed:
                        there += delay[edge]
                    ready = max(ready, there)
                if ready < 0:
                    break
                now = ready + length[row]
                end[row] = now
                row += 1
            if row != head:
                moved = True
                cursor[lane] = row
                clock[lane] = now


@kernel
def _play_together(
    lane_start: Any, lane: Any, group_of: Any, group_start: Any, group_rows: Any, edge_start: Any,
    edge_writer: Any, delay: Any, of_edge: Any, out: Any, link: Any, busy: Any, latency: Any,
    free: Any, length: Any, cursor: Any, end: Any, departure: Any, arrival: Any,
) -> None:  # fmt: skip
    """The same, where the members of a group move as one and transfers queue for their link."""
    lanes, delayed, wired = len(cursor), len(delay) > 0, len(link) > 0
    clock = np.zeros(lanes, np.int64)
    moved = True
    while moved:
        moved = False
        for at in range(lanes):
            while cursor[at] < lane_start[at + 1]:
                head = cursor[at]
                group = group_of[head]
                first, past = head, head + 1
                if group >= 0:
                    first, past = group_start[group], group_start[group + 1]
                # Ready when every member heads its lane and has all it reads from outside.
                ready = clock[at]
                for member in range(first, past):
                    row = member if group < 0 else group_rows[member]
                    if group >= 0:
                        here = lane[row]
                        ready = max(ready, clock[here])
                        back = row
                        while back > cursor[here] and group_of[back - 1] == group:
                            back -= 1
                        if back != cursor[here]:
                            ready = -1
                            break
                    for edge in range(edge_start[row], edge_start[row + 1]):
                        writer = edge_writer[edge]
                        if group >= 0 and writer >= 0 and group_of[writer] == group:
                            continue
                        there = end[writer] if writer >= 0 else -1
                        if there < 0:
                            ready = -1
                            break
                        if wired and of_edge[edge] >= 0:
                            there = arrival[of_edge[edge]]
                        elif delayed:
                            there += delay[edge]
                        ready = max(ready, there)
                    if ready < 0:
                        break
                if ready < 0:
                    break
                moved = True
                for member in range(first, past):
                    row = member if group < 0 else group_rows[member]
                    end[row] = ready + length[row]
                    clock[lane[row]] = max(clock[lane[row]], end[row])
                    cursor[lane[row]] += 1
                    if wired:
                        for move in range(out[row], out[row + 1]):
                            departure[move] = max(end[row], free[link[move]])
                            free[link[move]] = departure[move] + busy[move]
                            arrival[move] = free[link[move]] + latency[move]
