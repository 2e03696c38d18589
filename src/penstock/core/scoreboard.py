"""Runs lanes against the graph: every op starts when its lane and all it reads are there.

With the order fixed, time is a longest path, and one pass finds it: each lane advances while the
op at its head has everything. The same pass is the deadlock proof: lanes that cannot advance are
stuck, whatever the op times are, because ops only ever add what others wait for.
"""

from typing import Any, NamedTuple

import numpy as np

from penstock.core.graph import graph_of
from penstock.core.groups import groups_of
from penstock.core.kernel import kernel, part
from penstock.core.schedule import Schedule
from penstock.core.table import Ints, Ticks
from penstock.core.transfers import moves_of


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


def play_schedule(
    schedule: Schedule, length: Ticks, delay: Ticks = _NONE, wires: Wires | None = None
) -> Run:
    """Play a schedule: row i takes `length[i]`, and edge j of the graph `delay[j]` if given.

    Ops that run together do; where `wires` are given, transfers queue for their links.
    """
    table, graph, groups = schedule.table, graph_of(schedule), groups_of(schedule)
    end, cursor = np.full(len(table), -1, length.dtype), table.lane_start[:-1].copy()
    together = (table.lane, *groups) if len(groups.rows) else None
    links, (departure, arrival) = None, (_NONE, _NONE)
    if wires is not None:
        moves = moves_of(schedule)
        departure, arrival = np.full((2, len(wires.link)), -1, np.int64)
        free = np.zeros(int(wires.link.max(initial=-1)) + 1, np.int64)
        links = (moves.of_edge, moves.start, *wires, free, departure, arrival)
    _play(
        len(table), table.lane_start, graph.start, graph.writer, delay if len(delay) else None,
        together, links, length, cursor, end,
    )  # fmt: skip
    return Run(length, end, cursor, departure, arrival)


@kernel
def _play(
    lane_start: Any, edge_start: Any, edge_writer: Any, delay: Any, together: Any, links: Any,
    length: Any, cursor: Any, end: Any,
) -> None:  # fmt: skip
    """Visit the lanes in turn; let each run until its head has to wait; stop when none moved.

    Members of a group move as one, and transfers queue for their link. What is None is not
    compiled. Tuples are taken apart once, because that counts references of all their arrays.
    """
    if together is not None:
        lane, group_of, group_start, group_rows = together
    if links is not None:
        move_of, out, link, busy, latency, free, departure, arrival = links
    clock, moved = np.zeros(len(cursor), np.int64), True
    while moved:
        moved = False
        for at in range(len(cursor)):
            while cursor[at] < lane_start[at + 1]:
                group, first, past = -1, cursor[at], cursor[at] + 1
                if together is not None:
                    group = group_of[first]
                    if group >= 0:
                        first, past = group_start[group], group_start[group + 1]
                ready = clock[at]  # and when each member heads its lane and has what it reads
                for member in range(first, past):
                    row = member
                    if together is not None and group >= 0:
                        row = group_rows[member]
                        ready = max(ready, clock[lane[row]])
                        if not _heads_its_lane(row, cursor[lane[row]], group_of):
                            ready = -1
                            break
                    for edge in range(edge_start[row], edge_start[row + 1]):
                        writer = edge_writer[edge]
                        inside = group >= 0 and writer >= 0
                        if together is not None and inside and group_of[writer] == group:
                            continue
                        there = end[writer] if writer >= 0 else -1
                        if there < 0:
                            ready = -1
                            break
                        if links is not None and move_of[edge] >= 0:
                            there = arrival[move_of[edge]]
                        elif delay is not None:
                            there += delay[edge]
                        ready = max(ready, there)
                    if ready < 0:
                        break
                if ready < 0:
                    break
                moved = True
                for member in range(first, past):
                    row, here = member, at
                    if together is not None and group >= 0:
                        row, here = group_rows[member], lane[group_rows[member]]
                    end[row] = ready + length[row]
                    clock[here] = max(clock[here], end[row])
                    cursor[here] += 1
                    if links is not None:
                        _send(row, end[row], out, link, busy, latency, free, departure, arrival)


@part
def _heads_its_lane(row: Any, head: Any, group_of: Any) -> bool:
    """Whether nothing but members of its own group stands before a row in its lane."""
    while row > head and group_of[row - 1] == group_of[row]:
        row -= 1
    return bool(row == head)


@part
def _send(
    row: Any, ended: Any, out: Any, link: Any, busy: Any, latency: Any, free: Any, departure: Any,
    arrival: Any,
) -> None:  # fmt: skip
    """Let the transfers of a row leave, each when its link is free."""
    for move in range(out[row], out[row + 1]):
        departure[move] = max(ended, free[link[move]])
        free[link[move]] = departure[move] + busy[move]
        arrival[move] = free[link[move]] + latency[move]
