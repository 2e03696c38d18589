"""What of a step may run before the updates of the step before are confirmed.

An early update may turn out to be wrong. What was computed with it is then dropped and run again,
so that until the confirmation (C) a device may only do what leaves nothing behind: forwards. And a
forward is run again on its device alone: whatever it receives must be sent again too, and so comes
from a forward in front of the sender's own confirmation.

    1f1b, p = 2     0  F0 F1 C B0 ...       F0 and F1 are begun
                    1  F0 C B0 F1 ...       F1 of stage 1 is not: B0 stands in front of it
"""

import numpy as np

from penstock.core.gangs import ChosenRows
from penstock.core.graph import graph_of
from penstock.core.ops import Op
from penstock.core.schedule import Schedule

BEGUN_KINDS = frozenset("FN")
"""Kinds that only read what a confirmation may change."""


def begun_rows(schedule: Schedule) -> ChosenRows:
    """Rows of compute lanes in front of the first confirmation there; none without one."""
    table = schedule.table
    begun, confirming = np.zeros(len(table), np.bool_), table.of_kinds("C")
    for lane in np.unique(table.lane[confirming]).tolist():
        start, end = table.lane_start[lane : lane + 2].tolist()
        begun[start : start + int(np.argmax(confirming[start:end]))] = True
    return begun


def first_forwards(schedule: Schedule) -> ChosenRows:
    """The most that can be begun: from the start of every compute lane, as long as it goes."""
    table = schedule.table
    begun = np.zeros(len(table), np.bool_)
    for lane, stream in enumerate(table.lane_stream):
        begun[table.lane_start[lane] : table.lane_start[lane + 1]] = stream == "compute"
    while (wrong := not_to_begin(schedule, begun)).any():
        for lane in np.unique(table.lane[wrong]).tolist():
            start, end = table.lane_start[lane : lane + 2].tolist()
            begun[start + int(np.argmax(wrong[start:end])) : end] = False
    return begun


def not_to_begin(schedule: Schedule, begun: ChosenRows) -> ChosenRows:
    """Which of these rows cannot be dropped and run again."""
    table, graph = schedule.table, graph_of(schedule)
    found = begun & ~table.of_kinds(BEGUN_KINDS)
    for op in _bound(schedule):
        found[table.rows_by_op.get(op, [])] = True
    there = graph.writer >= 0
    reader, writer = graph.reader[there], graph.writer[there]
    gathered = table.of_kinds("G")
    found[reader[begun[reader] & ~begun[writer] & ~gathered[writer]]] = True
    copied = np.array(table.lane_stream)[table.lane[reader]] == "copy"
    found[writer[copied]] = True
    return found & begun


def _bound(schedule: Schedule) -> set[Op]:
    """Ops that run together with another one, which may be none that is begun."""
    pairs = {op for pair in schedule.pairs for op in pair}
    loans = {op for loan in schedule.loans for op in (loan.heavy, loan.light)}
    return pairs | loans | set(schedule.gangs)
