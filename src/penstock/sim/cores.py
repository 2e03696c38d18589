"""How long a step takes when the devices share fewer cores than there are devices.

On one machine a pipeline of four processes may have two cores. Then no schedule is faster than the
work over the cores, and a prediction that gives every process a core of its own is not what the
user will see. Here the ops that run at a moment share the cores evenly; transfers take no time, and
the strands of a pair run one after the other, as the runtime runs them.
"""

from fractions import Fraction

import numpy as np

from penstock.check import require
from penstock.core.graph import graph_of
from penstock.core.schedule import Schedule
from penstock.cost.model import Cost


def makespan_on(schedule: Schedule, cost: Cost, cores: float) -> Fraction:
    """Time from the first start to the last end with so many cores for all devices; a part of one
    where others use it too."""
    require(schedule)
    scaled = cost.durations(schedule)
    left = scaled.ticks.astype(np.float64)
    needs = _needs(schedule)
    waiting = [len(need) for need in needs]
    feeds: list[list[int]] = [[] for _ in needs]
    for row, need in enumerate(needs):
        for earlier in need:
            feeds[earlier].append(row)
    running = [row for row, count in enumerate(waiting) if count == 0]
    now = 0.0
    while running:
        pace = min(1.0, cores / len(running))
        passed = min(left[row] for row in running)
        now += passed / pace
        for row in running:
            left[row] -= passed
        ended = [row for row in running if left[row] <= 0]
        running = [row for row in running if left[row] > 0]
        for row in ended:
            for later in feeds[row]:
                waiting[later] -= 1
                if waiting[later] == 0:
                    running.append(later)
    return Fraction(round(now)) * scaled.tick


def _needs(schedule: Schedule) -> list[set[int]]:
    """The rows that must have ended before each row starts: its inputs, and its lane."""
    graph, table = graph_of(schedule), schedule.table
    needs: list[set[int]] = [set() for _ in range(len(table))]
    for reader, writer in zip(graph.reader.tolist(), graph.writer.tolist()):
        if writer >= 0:
            needs[reader].add(writer)
    for start, end in zip(table.lane_start[:-1].tolist(), table.lane_start[1:].tolist()):
        for row in range(start + 1, end):
            needs[row].add(row - 1)
    return needs
