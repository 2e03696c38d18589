"""From a program to the calls of one device, in milliseconds.

What an op reads and writes comes from the meaning table, what it waits for from the program's
edges. The lanes of a device (compute, copies, collectives) are merged into one host order.
"""

from collections import defaultdict

import numpy as np

from penstock.core.buffers import BUFFERS
from penstock.core.graph import graph_of
from penstock.core.host_order import host_order
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.program import Program
from penstock.errors import RunError
from penstock.run.program.calls import NOTHING, Call, Join, Lane, Post
from penstock.run.program.places import READ, PlaceTable, names_of
from penstock.run.program.unsupported import refuse_unsupported


def compile_lane(program: Program, device: int) -> Lane:
    """The calls of one device."""
    refuse_unsupported(program)
    if program.schedule.loans:
        raise RunError(
            f"{program.schedule.name} lends attention work, which its owners do when it is run",
            hint="lower it with lower_for_running, which sets loans aside",
        )
    return _Compiler(program, device).lane()


class _Compiler:
    """Everything about one device, looked up once."""

    def __init__(self, program: Program, device: int) -> None:
        self.program, self.device = program, device
        self.schedule, self.shape = program.schedule, program.schedule.shape
        self.rows = host_order(program.schedule, device).tolist()
        self.number = {row: number for number, row in enumerate(self.rows)}
        self.ops = dict(zip(self.rows, self.schedule.table.ops_at(self.rows)))
        self.unit = self.schedule.unit.tolist()
        self.places = PlaceTable(program, device)
        self.freed = set(program.frees.items.tolist())
        self.read_first: dict[int, list[int]] = defaultdict(list)
        """Transfers to this device by the row that reads them first."""
        self.read_last: dict[int, list[int]] = defaultdict(list)
        moves = program.moves
        for move in np.flatnonzero(self.schedule.table.device[moves.reader] == device).tolist():
            self.read_first[int(moves.reader[move])].append(move)
            self.read_last[int(moves.last_reader[move])].append(move)
        self.crossings = _between_streams(program, device)
        self.awaited = {writer for writers in self.crossings.values() for writer in writers}

    def lane(self) -> Lane:
        calls = tuple(map(self._call, self.rows))
        first = self.program.posts.after(len(self.schedule.table))
        posts = tuple(self._received(move) for move in first if self._arrives(move))
        braids = self._braids()
        return Lane(self.device, calls, posts, len(self.places), self.places.homes, braids)

    def _call(self, row: int) -> Call:
        program, table, op = self.program, self.schedule.table, self.ops[row]
        unit = self.unit[row]
        reads, writes = self.places.reads(op, unit), self.places.writes(op, unit)
        sent = range(program.moves.start[row], program.moves.start[row + 1])
        return Call(
            number=self.number[row],
            row=row,
            op=op,
            unit=unit,
            stream=table.lane_stream[table.lane[row]],
            reads=reads,
            writes=writes,
            waits=tuple(map(self._received, self.read_first.get(row, ()))),
            awaits=(*(self.number[w] for w in self.crossings.get(row, ())), *_totals(op, reads)),
            awaited=row in self.awaited,
            sends=tuple(map(self._sent, sent)),
            frees=tuple(self._freed(row, sent)),
            posts=tuple(map(self._received, program.posts.after(row))),
            joins=self._joins(row),
        )

    def _joins(self, row: int) -> tuple[Join, ...]:
        """Collectives whose last part on this device an op has written."""
        return tuple(map(self._join, self.program.joins.after(row)))

    def _join(self, at: int) -> Join:
        collectives, device = self.program.collectives, self.schedule.table.device
        buf, rows = collectives.buf(at, self.shape), collectives.parts(at)
        members = tuple(sorted(set(device[rows].tolist())))
        stages = [self.ops[row].stage for row in rows if row in self.ops]
        parts = tuple(self.places.of_part(buf.name, stage) for stage in stages)
        return Join(buf, members, parts, self.places.of_home(buf.name, buf.number))

    def _braids(self) -> dict[int, tuple[int, ...]]:
        """Pairs of this device, by the number of their first call."""
        row_of = {op: row for row, op in self.ops.items()}
        pairs = (pair for pair in self.schedule.pairs if pair[0] in row_of)
        numbers = (tuple(sorted(self.number[row_of[op]] for op in pair)) for pair in pairs)
        return {strands[0]: strands for strands in numbers}

    def _freed(self, row: int, sent: range) -> list[int]:
        """What is used last here, received or written here, and what was only written to be sent:
        the transport keeps it."""
        indices = self.program.frees.after(row)
        carried = self.program.carried
        indices += [carried[move] for move in self.read_last.get(row, ())]
        indices += [carried[move] for move in sent if carried[move] not in self.freed]
        places = map(self.places.known, indices)
        return [place for place in places if place is not None]

    def _arrives(self, move: int) -> bool:
        return self.program.channels[int(self.program.channel[move])].target == self.device

    def _received(self, move: int) -> Post:
        return self._post(move, self.program.channels[self.program.channel[move]].source)

    def _sent(self, move: int) -> Post:
        return self._post(move, self.program.channels[self.program.channel[move]].target)

    def _post(self, move: int, peer: int) -> Post:
        index = self.program.carried[move]
        buf = self.program.buf(index)
        unit = self.shape.first_unit[buf.mb] + buf.slice
        return Post(peer, move, self.places.of_unit(index), unit, buf)


def _totals(op: Op, reads: tuple[int, ...]) -> list[int]:
    """Tickets of the sums that an op reads."""
    if op.kind not in STAGE_KINDS:
        return []
    named = zip(names_of(op.kind, READ), reads)
    return [-place for name, place in named if BUFFERS[name].collective and place != NOTHING]


def _between_streams(program: Program, device: int) -> dict[int, list[int]]:
    """For each row, the rows of other lanes of the same device that it waits for."""
    graph, table = graph_of(program.schedule), program.schedule.table
    reader, writer = graph.reader, graph.writer
    here = (table.device[reader] == device) & (table.device[writer] == device)
    crossing = np.flatnonzero(here & (table.lane[reader] != table.lane[writer]))
    found: dict[int, list[int]] = defaultdict(list)
    for edge in crossing.tolist():
        found[int(reader[edge])].append(int(writer[edge]))
    return found
