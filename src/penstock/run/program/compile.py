"""From a program to the calls of one device, in milliseconds.

What an op reads and writes comes from the meaning table, what it waits for from the program's
edges. The lanes of a device (compute, copies, collectives) are merged into one host order: the
order in which the ops of all devices would end if each took one tick. Nothing in it waits for what
comes later, on whatever device, so hosts that go through their ops in this order cannot block each
other.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from penstock.core.graph import graph_of
from penstock.core.homes import parts_of, sums_of
from penstock.core.meaning import BUFFERS, SUM, Buf
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.program import Program
from penstock.core.scoreboard import play_schedule
from penstock.run.program.calls import NOTHING, Call, Join, Lane, Post
from penstock.run.program.places import READ, WRITE, PlaceTable, names_of
from penstock.run.program.unsupported import refuse_unsupported


def compile_lane(program: Program, device: int) -> Lane:
    """The calls of one device."""
    refuse_unsupported(program)
    return _Compiler(program, device).lane()


def host_order(program: Program, device: int) -> list[int]:
    """The rows of all lanes of a device in the order in which its host deals with them."""
    table = program.schedule.table
    rows = np.flatnonzero(table.device == device)
    if len(set(table.lane[rows].tolist())) > 1:
        ticks = program.schedule.derive(
            "ticks", lambda s: play_schedule(s, np.ones(len(s.table), np.int64))
        )
        computes = np.array(table.lane_stream)[table.lane[rows]] == "compute"
        rows = rows[np.lexsort((computes, ticks.end[rows]))]  # side streams are told first
    return [int(row) for row in rows]


class _Compiler:
    """Everything about one device, looked up once."""

    def __init__(self, program: Program, device: int) -> None:
        self.program, self.device = program, device
        self.schedule, self.shape = program.schedule, program.schedule.shape
        self.rows = host_order(program, device)
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
        joins = self._joins()
        calls = tuple(self._call(row, joins.get(row, [])) for row in self.rows)
        first = self.program.posts.after(len(self.schedule.table))
        posts = tuple(self._received(move) for move in first if self._arrives(move))
        braids = self._braids()
        return Lane(self.device, calls, posts, len(self.places), self.places.homes, braids)

    def _call(self, row: int, joins: Iterable[Join]) -> Call:
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
            joins=tuple(joins),
        )

    def _joins(self) -> dict[int, list[Join]]:
        """Sums that this device has parts of, by the row that writes its last part."""
        rows_of: dict[Buf, list[int]] = defaultdict(list)
        ending = [(row, op) for row, op in self.ops.items() if op.kind in STAGE_KINDS]
        for row, op in ending:
            for name in names_of(op.kind, WRITE):
                if BUFFERS[name].crosses == SUM:
                    for number in sums_of(self.shape, name, op.stage):
                        rows_of[Buf(name, number, op.mb, 0)].append(row)
        joins: dict[int, list[Join]] = defaultdict(list)
        for buf, rows in rows_of.items():
            joins[rows[-1]].append(self._join(buf, rows))
        return joins

    def _join(self, buf: Buf, rows: list[int]) -> Join:
        table = self.schedule.table
        everywhere = parts_of(self.schedule, buf.name, self.ops[rows[0]].stage)
        members = tuple(sorted({int(table.device[row]) for row in everywhere}))
        parts = tuple(self.places.of_part(buf.name, self.ops[row].stage) for row in rows)
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
    return [-place for name, place in named if BUFFERS[name].crosses == SUM and place != NOTHING]


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
