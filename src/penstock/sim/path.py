"""Why a step takes as long as it does: the chain of ops that leaves no gap.

Walking back from the op that ends last, each op started when something ended: the op before it in
its lane, or the writer of what it read, plus the time of the transfer. That chain is the critical
path; to shorten the step, one of its links has to become shorter.
"""

from penstock.core.graph import graph_of
from penstock.core.groups import groups_of
from penstock.core.transfers import joined_edges, moves_of
from penstock.sim.timeline import Span, Timeline


def critical_path(timeline: Timeline) -> list[Span]:
    """The ops on the critical path, from the first to the last."""
    row = int(timeline.end.argmax())
    path = [row]
    begin = int(timeline.start.min())
    while int(timeline.start[row]) > begin:
        row = _cause(timeline, row)
        path.append(row)
    return [timeline.span_of(row) for row in reversed(path)]


def _cause(timeline: Timeline, row: int) -> int:
    """The op whose end (or whose transfer's end) let this one start."""
    schedule = timeline.schedule
    table, graph, groups = schedule.table, graph_of(schedule), groups_of(schedule)
    group = int(groups.of_row[row])
    members = [row] if group < 0 else groups.rows[slice(*groups.start[group : group + 2])].tolist()
    moves = moves_of(schedule)
    # what collectives bring stands behind the messages
    joined = {edge: len(moves.writer) + n for n, edge in enumerate(joined_edges(schedule).tolist())}
    best, latest = row, -1
    for member in members:
        ready = [(member - 1, int(timeline.end[member - 1]))] if table.position(member) else []
        for edge in range(graph.start[member], graph.start[member + 1]):
            writer, move = int(graph.writer[edge]), int(moves.of_edge[edge])
            move = joined.get(edge, move)
            end = timeline.transfers.end[move] if move >= 0 else timeline.end[writer]
            ready.append((writer, int(end)))
        for cause, end in ready:
            if cause not in members and end > latest:
                best, latest = cause, end
    return best
