"""Which of the ops that take no time comes first.

Ops of several lanes that take no time may all stand at one moment. What they hold then depends on
their order, and order is what a schedule has: an op comes behind all that it waits for. So each row
has a turn within its moment, and a compute op that takes memory without taking time ends a turn
later. Copies that take no time hand memory over: what one brings takes the place of what another
has given back. Ops that take time begin when all of these are over.
"""

from typing import Any, NamedTuple

import numpy as np

from penstock.core.graph import graph_of
from penstock.core.kernel import kernel
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import play_schedule
from penstock.core.table import Ticks


class Turns(NamedTuple):
    """Of each row, where its start and its end come among all that happens at that moment."""

    start: Ticks
    end: Ticks


def turns_of(
    schedule: Schedule, at_start: Ticks, at_end: Ticks, times: tuple[Ticks, Ticks]
) -> Turns:
    """The turns of rows that change levels at given times."""
    start, end = times
    instant = start == end
    beside = np.array([stream != "compute" for stream in schedule.table.lane_stream])
    takes = instant & ~beside[schedule.table.lane] & ((at_start != 0) | (at_end > 0))
    turn = np.zeros(len(start), np.int64)
    if takes.any():
        depth = play_schedule(schedule, np.ones(len(start), np.int64)).start
        graph = graph_of(schedule)
        order = np.lexsort((depth, start))
        columns = (graph.start, graph.writer, schedule.table.lane, start, end, instant, takes)
        _turns(len(start), order, *columns, turn)
    last = int(turn.max(initial=0)) + 1
    return Turns(np.where(instant, turn, last), np.where(instant, turn + takes, 0))


@kernel
def _turns(
    order: Any, edge_start: Any, edge_writer: Any, lane: Any, start: Any, end: Any, instant: Any,
    takes: Any, turn: Any,
) -> None:  # fmt: skip
    """Behind the latest of what ends when a row starts; what began before that ends in turn 0."""
    for row in order:
        latest = 0
        if row > 0 and lane[row - 1] == lane[row]:
            before = row - 1
            if instant[before] and end[before] == start[row]:
                latest = turn[before] + takes[before]
        for edge in range(edge_start[row], edge_start[row + 1]):
            writer = edge_writer[edge]
            if writer >= 0 and instant[writer] and end[writer] == start[row]:
                latest = max(latest, turn[writer] + takes[writer])
        turn[row] = latest
