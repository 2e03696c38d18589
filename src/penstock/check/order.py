"""Can every op run, in the order given?

Two things can be wrong. An op may read what its own lane writes only behind it: then that lane can
never pass. Or lanes may wait for each other in a circle. Either way the message must name the op
that is misplaced, not the first one that happens to wait for it on another device.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.check.blame import culprit
from penstock.check.finding import Finding
from penstock.core.buffers import BUFFERS
from penstock.core.graph import Graph, graph_of
from penstock.core.groups import groups_of
from penstock.core.kernel import kernel
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Run, play_schedule

WAITS_SHOWN = 8


class LaneWait(NamedTuple):
    """`head` is the op a lane cannot pass; `writer` is what it waits for, in another lane.

    `reader` is who reads it: the head, or an op that has to run together with the head.
    """

    head: int
    reader: int
    writer: int
    buffer: str


def order(schedule: Schedule) -> Iterator[Finding]:
    """Reads that nobody writes, reads in front of their write, and circles of waiting lanes."""
    graph, table = graph_of(schedule), schedule.table
    columns = (table.lane_start, table.lane, groups_of(schedule).of_row)
    if not _in_front(len(graph.reader), graph.reader, graph.writer, *columns):
        yield from _wrong_reads(schedule, graph)
        return
    played = play_schedule(schedule, np.zeros(len(schedule.table), np.int64))
    if played.stuck(schedule):
        yield _circle(schedule, graph, played)


@kernel
def _in_front(reader: Any, writer: Any, lane_start: Any, lane: Any, group: Any) -> bool:
    """Whether every read has a writer, which stands in another lane, in front of the reader or in
    its group."""
    for edge in range(len(reader)):
        row, other = reader[edge], writer[edge]
        if other < 0:
            return False
        if row <= other < lane_start[lane[row] + 1] and (
            group[row] < 0 or group[row] != group[other]
        ):
            return False
    return True


def _wrong_reads(schedule: Schedule, graph: Graph) -> Iterator[Finding]:
    """Those without a writer, or else those in front of it."""
    unwritten = np.flatnonzero(graph.writer < 0)
    if unwritten.size:
        yield from (_unwritten(schedule, graph, int(edge)) for edge in unwritten[:WAITS_SHOWN])
        return
    yield from _misplaced(schedule, graph, _behind(schedule, graph))


def _unwritten(schedule: Schedule, graph: Graph, edge: int) -> Finding:
    row, table = int(graph.reader[edge]), schedule.table
    op, text = table.op(row), BUFFERS[graph.name(edge)].text
    return Finding(
        "read-before-write",
        (op,),
        int(table.device[row]),
        f"{op} (device {table.device[row]}) reads {text}, which no op writes",
        "add the op that writes it",
    )


def _behind(schedule: Schedule, graph: Graph) -> list[int]:
    """Edges whose writer stands later in the reader's own lane (a pair's strands excepted)."""
    table, group = schedule.table, groups_of(schedule).of_row
    reader, writer = graph.reader, graph.writer
    later = np.flatnonzero(writer >= reader)
    lane_end = table.lane_start[1:][table.lane[reader[later]]]
    late = later[writer[later] < lane_end]
    apart = (group[reader[late]] < 0) | (group[reader[late]] != group[writer[late]])
    return [int(edge) for edge in late[apart]]


def _misplaced(schedule: Schedule, graph: Graph, behind: list[int]) -> Iterator[Finding]:
    """One finding per misplaced op: the op that is in most of the broken reads is to blame."""
    involved = Counter(int(row) for e in behind for row in {graph.reader[e], graph.writer[e]})
    seen: set[int] = set()
    for edge in behind:
        reader, writer = int(graph.reader[edge]), int(graph.writer[edge])
        blamed = reader if involved[reader] >= involved[writer] else writer
        if blamed in seen:
            continue
        seen.add(blamed)
        if len(seen) > WAITS_SHOWN:
            return
        yield _front_of(schedule, graph, edge, blamed)


def _front_of(schedule: Schedule, graph: Graph, edge: int, blamed: int) -> Finding:
    table, name = schedule.table, graph.name(edge)
    reader, writer = int(graph.reader[edge]), int(graph.writer[edge])
    other = writer if blamed == reader else reader
    early, late = table.op(reader), table.op(writer)
    device = int(table.device[reader])
    if name == "after":
        rule, what = "read-before-write", f"must come after {late}"
    else:
        rule = BUFFERS[name].rule
        what = f"waits for {BUFFERS[name].text}, written by {late}"
    return Finding(
        rule,
        (table.op(blamed), table.op(other)),
        device,
        f"{early} (device {device}, position {table.position(reader)}) {what}, which comes "
        f"later in the same lane (position {table.position(writer)})",
        _hint(schedule, rule, (reader, writer), blamed),
    )


def _hint(schedule: Schedule, rule: str, broken: tuple[int, int], blamed: int) -> str:
    early, late = (schedule.table.op(row) for row in broken)
    if blamed == broken[1]:
        return f"move {late} before {early}"
    if rule == "slice-order" and early.kind in "BI":
        return f"run the backward slices of microbatch {early.mb} from the last to the first"
    if rule == "slice-order":
        return f"run the forward slices of microbatch {early.mb} from the first to the last"
    return f"move {early} after {late}"


def _circle(schedule: Schedule, graph: Graph, played: Run) -> Finding:
    """Follow who waits for whom from lane to lane until a lane comes up again."""
    table = schedule.table
    waits = circle(schedule, graph, played)
    following = [*waits[1:], waits[0]]
    chain = [
        f"{_who(schedule, wait)} waits for {table.op(wait.writer)}, which comes after "
        f"{table.op(behind.head)} on device {table.device[wait.writer]}"
        for wait, behind in zip(waits, following)
    ]
    # In the lane of each wait's writer, the head stands in front although the writer is needed.
    inverted = [(behind.head, wait.writer) for wait, behind in zip(waits, following)]
    move = culprit(schedule, inverted)
    head, writer = inverted[-1]
    blamed = move.source if move else head
    rows = [blamed, *(row for wait in waits for row in (wait.head, wait.reader, wait.writer))]
    hint = f"let {table.op(writer)} come before {table.op(head)}"
    return Finding(
        "deadlock",
        tuple(dict.fromkeys(table.op(row) for row in rows)),
        int(table.device[blamed]),
        "; ".join(chain),
        f"{move.words(schedule) if move else hint} on device {table.device[blamed]}",
    )


def _who(schedule: Schedule, wait: LaneWait) -> str:
    """The op that waits and its device, and the one in whose way that is."""
    table = schedule.table
    who = f"{table.op(wait.reader)} (device {table.device[wait.reader]})"
    return who if wait.reader == wait.head else f"{who}, with which {table.op(wait.head)} runs,"


def circle(schedule: Schedule, graph: Graph, played: Run) -> list[LaneWait]:
    """The circle of waits in which a stuck run ended."""
    table, ends = schedule.table, schedule.table.lane_start[1:]
    lane = int(np.flatnonzero(played.cursor < ends)[0])
    path: list[int] = []
    waits: dict[int, LaneWait] = {}
    while lane not in waits:
        path.append(lane)
        waits[lane] = _wait(schedule, graph, played, lane)
        lane = int(table.lane[waits[lane].writer])
    return [waits[at] for at in path[path.index(lane) :]]


def _wait(schedule: Schedule, graph: Graph, played: Run, lane: int) -> LaneWait:
    """What the head of a lane (or a member of its group) waits for."""
    head = int(played.cursor[lane])
    groups = groups_of(schedule)
    group = int(groups.of_row[head])
    members = [head] if group < 0 else groups.rows[slice(*groups.start[group : group + 2])]
    for row in members:
        for edge in range(graph.start[row], graph.start[row + 1]):
            writer = int(graph.writer[edge])
            same = group >= 0 and groups.of_row[writer] == group
            if played.end[writer] < 0 and not same:
                return LaneWait(head, int(row), writer, graph.name(edge))
    # No read is open, so a member is not yet at the head of its own lane.
    late = next(int(row) for row in members if _not_at_head(schedule, played, int(row), group))
    return LaneWait(head, head, late, "lock-step")


def _not_at_head(schedule: Schedule, played: Run, row: int, group: int) -> bool:
    groups, cursor = groups_of(schedule), played.cursor[schedule.table.lane[row]]
    while row > cursor and groups.of_row[row - 1] == group:
        row -= 1
    return bool(row != cursor)
