"""From a program to the calls of one device, in milliseconds.

What an op reads and writes comes from the meaning table, what it waits for from the program's
edges. The lanes of a device (compute, copies, collectives) are merged into one host order.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import ALL, BUFFERS
from penstock.core.collector import collector_resting
from penstock.core.gangs import helping_rows
from penstock.core.graph import graph_of
from penstock.core.host_order import host_order
from penstock.core.meaning import MEANING
from penstock.core.ops import STAGE_KINDS
from penstock.core.program import Program
from penstock.core.table import Ints
from penstock.run.program.calls import NOTHING, Call, Join, Lane, Post
from penstock.run.program.loan_ends import LoanEnds
from penstock.run.program.order_messages import OrderMessages
from penstock.run.program.places import READ, PlaceTable, names_of
from penstock.run.program.unsupported import refuse_unsupported


def compile_lane(program: Program, device: int) -> Lane:
    """The calls of one device."""
    refuse_unsupported(program)
    with collector_resting():
        return _Compiler(program, device).lane()


class _Compiler:
    """Everything about one device, looked up once; each field of its calls is a column."""

    def __init__(self, program: Program, device: int) -> None:
        self.program, self.device = program, device
        self.schedule, self.shape = program.schedule, program.schedule.shape
        self.rows = host_order(program.schedule, device).tolist()
        self.number = {row: number for number, row in enumerate(self.rows)}
        self.ops = dict(zip(self.rows, self.schedule.table.ops_at(self.rows)))
        self.units: list[int] = self.schedule.unit[self.rows].tolist()
        self.away: list[bool] = helping_rows(self.schedule)[self.rows].tolist()
        """Whether each call only helps a device where its stage is."""
        at_home = [None if away else op for op, away in zip(self.ops.values(), self.away)]
        self.places = PlaceTable(program, device, at_home, self.units)
        moves, at, whole = program.moves, self.schedule.table.device, program.carried >= 0
        self.sent = self._posts(np.flatnonzero(whole & (at[moves.writer] == device)), "target")
        """Transfers from this device, but for those of loans: these are sent while ops run."""
        self.received = self._posts(np.flatnonzero(whole & (at[moves.reader] == device)), "source")
        self.read_first = _by_row(moves.reader, self.received)
        """Transfers to this device by the row that reads them first."""
        self.read_last = _by_row(moves.last_reader, self.received)
        self.crossings = _between_streams(program, device)
        self.joining = self._joining()
        self.last_reading = {
            place: row
            for row, places in self.joining.items()
            if self.ops[row].kind not in STAGE_KINDS
            for place in places
        }
        """The last row that reads what a collective brings of a unit, by its place."""
        self.orders = OrderMessages.of(program, device, self.places.of_home)
        self.loans = LoanEnds.of(program, device)

    def _posts(self, moves: NDArray[np.intp], peer: str) -> dict[int, Post]:
        """Transfers as this device sees them; `peer` is the end that it is not."""
        program = self.program
        peers = [getattr(channel, peer) for channel in program.channels]
        indices = program.carried[moves]
        columns = (
            [peers[channel] for channel in program.channel[moves].tolist()],
            moves.tolist(),
            self.places.of_units(indices.tolist()),
            self.schedule.unit[program.moves.writer[moves]].tolist(),
            program.bufs_at(indices),
        )
        return dict(zip(columns[1], map(Post, *columns)))

    def lane(self) -> Lane:
        first = self.program.posts.after(len(self.schedule.table))
        posts = tuple(self.received[move] for move in first if move in self.received)
        posts += self.orders.expected
        calls = tuple(map(Call, *self._columns()))
        braids = self._braids()
        return Lane(self.device, calls, posts, len(self.places), self.places.homes, braids)

    def _columns(self) -> tuple[Iterable[Any], ...]:
        """The fields of all calls, in the order of a call's fields."""
        program, table = self.program, self.schedule.table
        lane_of = table.lane[self.rows].tolist()
        posted = program.posts.of_rows(self.rows)
        started, joined = program.moves.of_rows(self.rows), program.joins.of_rows(self.rows)
        joins = [
            tuple(self._join(at, row) for at in numbers) for row, numbers in zip(self.rows, joined)
        ]
        awaited = {writer for writers in self.crossings.values() for writer in writers}
        awaited |= {self.rows[call] for row in joins for join in row for call in join.awaits}
        return (
            range(len(self.rows)),
            self.rows,
            self.ops.values(),
            self.units,
            [table.lane_stream[lane] for lane in lane_of],
            self.places.reads,
            self.places.writes,
            self._waits(),
            self._awaits(),
            [row in awaited for row in self.rows],
            self._sends(started),
            self._frees(started),
            [tuple([self.received[m] for m in moves if m in self.received]) for moves in posted],
            joins,
            [self.loans.lends.get(row, ()) for row in self.rows],
            [self.loans.helps.get(row, ()) for row in self.rows],
            self.away,
        )

    def _waits(self) -> list[tuple[Post, ...]]:
        """What each call has to have received."""
        return [
            (*[self.received[m] for m in self.read_first.get(row, ())], *self.orders.to(row))
            for row in self.rows
        ]

    def _sends(self, started: Iterable[Sequence[int]]) -> list[tuple[Post, ...]]:
        """What follows each call to other devices."""
        return [
            (*[self.sent[move] for move in moves if move in self.sent], *self.orders.of_row(row))
            for row, moves in zip(self.rows, started)
        ]

    def _awaits(self) -> list[tuple[int, ...]]:
        """Calls of other streams, and sums, that each call waits for."""
        awaits = {
            row: tuple([self.number[w] for w in writers]) for row, writers in self.crossings.items()
        }
        for row in self.joining:
            awaits[row] = (*awaits.get(row, ()), *(-place for place in self.joining[row]))
        return [awaits.get(row, ()) for row in self.rows]

    def _joining(self) -> dict[int, list[int]]:
        """Places of what collectives bring, by the rows that read it."""
        every = STAGE_KINDS if not self.shape.shards else frozenset(MEANING)
        at = {kind: places for kind in every if (places := _brought(kind))}
        found: dict[int, list[int]] = {}
        for (row, op), reads in zip(self.ops.items(), self.places.reads):
            if reads and op.kind in at:
                brought = (reads[index] for index in at[op.kind])
                found[row] = [place for place in brought if place != NOTHING]
        return found

    def _join(self, at: int, last: int) -> Join:
        """A collective that this device joins behind a row."""
        collectives, device = self.program.collectives, self.schedule.table.device
        buf, rows = collectives.buf(at, self.shape), collectives.parts(at)
        members = tuple(sorted(set(device[rows].tolist())))
        if buf.number == ALL:
            place = self.places.of_shard(buf.name, int(collectives.unit[at]))
            return Join(buf, members, (place,), place, place in self.last_reading)
        here, lane = [row for row in rows if row in self.ops], self.schedule.table.lane
        stages = [self.ops[row].stage for row in here]
        parts = tuple(self.places.of_part(buf.name, stage) for stage in stages)
        total = self.places.of_home(buf.name, buf.number)
        read = any(total in places for places in self.joining.values())
        beside = tuple([self.number[row] for row in here if lane[row] != lane[last]])
        return Join(buf, members, parts, total, read, beside)

    def _braids(self) -> dict[int, tuple[int, ...]]:
        """Pairs of this device, by the number of their first call."""
        row_of = {op: row for row, op in self.ops.items()}
        pairs = (pair for pair in self.schedule.pairs if pair[0] in row_of)
        numbers = (tuple(sorted(self.number[row_of[op]] for op in pair)) for pair in pairs)
        return {strands[0]: strands for strands in numbers}

    def _frees(self, started: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
        """What is used last by each call, received or written here, and what was only written to
        be sent: the transport keeps it."""
        carried, place = self.program.carried.tolist(), self.places.units
        freed = set(self.program.frees.items.tolist())
        found: list[tuple[int, ...]] = []
        for row, ends, sent in zip(self.rows, self.program.frees.of_rows(self.rows), started):
            if row in self.read_last:
                ends += [carried[move] for move in self.read_last[row]]
            if sent:
                ends += [carried[move] for move in sent if carried[move] not in freed]
            brought = [at for at in self.joining.get(row, ()) if self.last_reading.get(at) == row]
            found.append((*[place[at] for at in ends if at in place], *brought))
        return found


def _by_row(rows: Ints, moves: Iterable[int]) -> dict[int, list[int]]:
    """Transfers by the row that each has in a column."""
    of = rows.tolist()
    found: dict[int, list[int]] = defaultdict(list)
    for move in moves:
        found[of[move]].append(move)
    return found


def _brought(kind: str) -> list[int]:
    """Which of the reads of a kind are brought by collectives."""
    return [at for at, name in enumerate(names_of(kind, READ)) if BUFFERS[name].collective]


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
