"""A schedule lowered for running: the ops, and around each what to send, join, receive and free.

The program keeps the schedule's rows and attaches to each what follows it, as columns. The list of
instructions that a device executes is a view of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from penstock.core.buffers import BUFFERS, Buf
from penstock.core.collectives import Collectives
from penstock.core.loans import loan_buffer, loans_by_rows
from penstock.core.meaning import LENDER, Rule, rules
from penstock.core.ops import Op
from penstock.core.rules import NAMES
from penstock.core.schedule import Schedule
from penstock.core.table import LETTERS, Ints
from penstock.core.transfers import Moves


class Channel(NamedTuple):
    """All transfers of one payload from one device to another, in the order they are sent."""

    source: int
    target: int
    payload: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target} {self.payload}"


class Instr(NamedTuple):
    """One step of a device. `what` is begin, run, send, join (a collective), receive or free.

    Only an op that lends work has a step of its own to begin with: what it lends leaves before it
    has ended.
    """

    what: str
    op: Op | None = None
    buf: Buf | None = None
    channel: Channel | None = None
    slot: int = -1
    stream: str = "compute"

    def __str__(self) -> str:
        if self.op is not None:
            return str(self.op) if self.what == "run" else f"{self.what} {self.op}"
        where = f" on {self.channel}" if self.channel else ""
        slot = f" into slot {self.slot}" if self.slot >= 0 else ""
        return f"{self.what} {self.buf}{where}{slot}"


class Attached(NamedTuple):
    """Items that follow each row: `items[start[row] : start[row + 1]]`."""

    start: Ints
    items: Ints

    def after(self, row: int) -> list[int]:
        found: list[int] = self.items[self.start[row] : self.start[row + 1]].tolist()
        return found

    def of_rows(self, rows: Sequence[int]) -> list[list[int]]:
        """The same for each of several rows."""
        starts, ends = self.start[rows].tolist(), self.start[1:][rows].tolist()
        items = self.items.tolist()
        return [items[start:end] for start, end in zip(starts, ends)]


def _numbers(of_kind: tuple[Rule, ...], name: str, stage: int) -> list[int]:
    """Numbers of the instances of a buffer that a kind of op names on a stage."""
    here = (rule for rule in of_kind if rule.buffer == name and rule.first <= stage < rule.end)
    return [stage + rule.offset if rule.fixed < 0 else rule.fixed for rule in here]


_LENT = frozenset(ref.buffer for ref in LENDER.writes)
"""What leaves a device before the op that writes it has ended."""


@dataclass(frozen=True, eq=False)
class Program:
    """What every device executes, step by step."""

    schedule: Schedule
    channels: tuple[Channel, ...]
    slots: tuple[int, ...]
    """Receive slots planned for each channel."""
    moves: Moves
    channel: Ints
    """Channel of each transfer."""
    slot: Ints
    """Slot of each transfer on the receiving device."""
    posts: Attached
    """Transfers whose receive is posted after each row; the last entry is what is posted first."""
    frees: Attached
    """Buffer instances (dense numbers) freed after each row."""
    collectives: Collectives
    joins: Attached
    """Collectives that the device joins after each row."""
    bufs: dict[str, tuple[int, int]]
    """First dense number and count of numbers of each buffer."""

    def __repr__(self) -> str:
        return f"<Program {self.schedule.summary}, {len(self.channels)} channels>"

    def bufs_at(self, indices: Ints) -> list[Buf]:
        """The buffer instances of dense numbers."""
        shape, names = self.schedule.shape, [*self.bufs]
        bases = np.array([base for base, _ in self.bufs.values()])
        which = np.searchsorted(bases, indices, side="right") - 1
        number, unit = np.divmod(indices - bases[which], shape.units)
        first = np.array(shape.first_unit)
        mb: Ints = np.asarray(np.searchsorted(first, unit, side="right") - 1)
        columns: list[list[int]] = [number.tolist(), mb.tolist(), (unit - first[mb]).tolist()]
        return list(map(Buf, [names[each] for each in which.tolist()], *columns))

    def moved(self, move: int) -> Buf:
        """The buffer instance that a transfer carries."""
        return self._moved[move]

    @cached_property
    def _moved(self) -> list[Buf]:
        plain = iter(self.bufs_at(self.carried[self.carried >= 0]))
        return [
            next(plain) if index >= 0 else self._lent(move)
            for move, index in enumerate(self.carried.tolist())
        ]

    def _lent(self, move: int) -> Buf:
        """What a transfer carries that belongs to a loan."""
        ends = int(self.moves.writer[move]), int(self.moves.reader[move])
        return loan_buffer(self.schedule, self.moves.payload(move), self._loans[ends])

    @cached_property
    def _loans(self) -> dict[tuple[int, int], int]:
        return loans_by_rows(self.schedule)

    @cached_property
    def _freed(self) -> list[Buf]:
        return self.bufs_at(self.frees.items)

    @cached_property
    def carried(self) -> Ints:
        """Dense number of what each transfer carries: written at one end, read at the other; -1
        for what belongs to a loan."""
        table, moves = self.schedule.table, self.moves
        ends = [(table.kind[rows], table.stage[rows]) for rows in (moves.writer, moves.reader)]
        cases = np.stack([moves.buffer, *ends[0], *ends[1]], axis=1).astype(np.int64)
        different, case_of = np.unique(cases, axis=0, return_inverse=True)
        first = [self._first_carried(*case) for case in different.tolist()]
        offsets = np.array(first, np.int64).reshape(-1)[case_of.reshape(-1)]
        numbers: Ints = np.maximum(offsets + self.schedule.unit[moves.writer], -1)
        return numbers

    def _first_carried(self, buffer: int, writer: int, source: int, reader: int, to: int) -> int:
        """Dense number for the first unit of what one stage's op of a kind writes for another's.

        A stage may write several of one name, as for two skip edges.
        """
        name, table = NAMES[buffer], rules(self.schedule.shape)
        if BUFFERS[name].per == "loan":
            return -self.schedule.shape.units - 1
        written = _numbers(table[LETTERS[writer]][1], name, source)
        wanted = _numbers(table[LETTERS[reader]][0], name, to)
        number = next((n for n in written if n in wanted), written[0])
        return self.bufs[name][0] + number * self.schedule.shape.units

    def instructions(self, device: int) -> list[Instr]:
        """The steps of one device: receives that need no wait, then each op with what follows."""
        table = self.schedule.table
        steps = [self._receive(m) for m in self.posts.after(len(table)) if self._to(m) == device]
        for lane, at in enumerate(table.lane_device):
            if at == device:
                for row in range(table.lane_start[lane], table.lane_start[lane + 1]):
                    steps += self._around(row, table.lane_stream[lane])
        return steps

    def _around(self, row: int, stream: str) -> list[Instr]:
        every = range(self.moves.start[row], self.moves.start[row + 1])
        early = [move for move in every if self.moves.payload(move) in _LENT]
        sent = [move for move in every if move not in early]
        op = self.schedule.table.op(row)
        return [
            *([Instr("begin", op=op, stream=stream)] if early else []),
            *(self._send(move) for move in early),
            Instr("run", op=op, stream=stream),
            *(self._send(move) for move in sent),
            *(self._join(at) for at in self.joins.after(row)),
            *(
                Instr("free", buf=buf)
                for buf in self._freed[slice(*self.frees.start[row : row + 2])]
            ),
            *(self._receive(move) for move in self.posts.after(row)),
        ]

    def _to(self, move: int) -> int:
        return self.channels[int(self.channel[move])].target

    def _send(self, move: int) -> Instr:
        return Instr("send", buf=self.moved(move), channel=self.channels[self.channel[move]])

    def _join(self, at: int) -> Instr:
        return Instr("join", buf=self.collectives.buf(at, self.schedule.shape))

    def _receive(self, move: int) -> Instr:
        channel = self.channels[self.channel[move]]
        return Instr("receive", buf=self.moved(move), channel=channel, slot=int(self.slot[move]))
