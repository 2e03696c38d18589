"""A device's share of a program, with every name resolved to a place in a list.

The executor's loop should do as little as possible between two ops. Here each buffer that the
device ever holds gets a place, and each op becomes a step that knows its places, what it waits for,
and what follows it. What a step reads and writes comes from the meaning table.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.core.meaning import BUFFERS, Buf, reads, writes
from penstock.core.ops import Op
from penstock.core.program import Program
from penstock.run.program.unsupported import refuse_foreign

FORWARDS = frozenset("FN")

NOTHING = 0
"""The place that is always empty: what an op does not have, it reads from here."""

DROPPED = 1
"""The place that nobody reads: what nobody wants is written here."""


OUTWARDS = frozenset({"x", "g"})
"""Buffers that an op reads of its own stage and writes for a neighbour."""


class Places(NamedTuple):
    """Where a step finds what it reads, and where it puts what it writes."""

    x: int
    kv: int
    act: int
    ckpt: int
    g: int
    dkv: int
    stash: int
    out: int
    """The next stage's input (F, N) or the previous stage's gradient (B, I)."""


class Post(NamedTuple):
    """One transfer as its ends see it: the other device, a number, and what is moved."""

    peer: int
    tag: int
    place: int
    unit: int
    buf: Buf


class Step(NamedTuple):
    """One op of the lane and everything around it."""

    row: int
    op: Op
    unit: int
    places: Places
    waits: tuple[Post, ...]
    """Transfers that must have arrived before the op can run."""
    sends: tuple[Post, ...]
    frees: tuple[int, ...]
    posts: tuple[Post, ...]
    """Receives that can be posted once the op has run."""


@dataclass(frozen=True)
class Lane:
    """What one device does in one step."""

    device: int
    steps: tuple[Step, ...]
    first: tuple[Post, ...]
    """Receives that are posted before anything runs."""
    places: int
    """Length of the list of values."""


def compile_lane(program: Program, device: int) -> Lane:
    """The steps of one device."""
    refuse_foreign(program)
    return _Compiler(program, device).lane()


def forward_lane(lane: Lane) -> Lane:
    """The lane with its forwards alone, for evaluation; keys and values go with the last slice, and
    what a backward would need goes at once.

    A part of an order that nothing blocks is blocked by nothing, and a receive is posted when an
    earlier forward has freed its slot, so what is left is as safe as the whole.
    """
    last = {(s.op.stage, s.op.mb): s.row for s in lane.steps if s.op.kind in FORWARDS}
    steps = tuple(
        step._replace(
            places=step.places._replace(act=DROPPED, ckpt=DROPPED),
            frees=(*step.frees, DROPPED, *_ended(step, last[step.op.stage, step.op.mb])),
        )
        for step in lane.steps
        if step.op.kind in FORWARDS
    )
    first = tuple(post for post in lane.first if post.buf.name == "x")
    return Lane(lane.device, steps, first, lane.places)


def _ended(step: Step, last_row: int) -> tuple[int, ...]:
    return (step.places.kv,) if step.row == last_row else ()


class _Compiler:
    """Gives places to buffers as they are met."""

    def __init__(self, program: Program, device: int) -> None:
        self.program, self.device = program, device
        self.shape = program.schedule.shape
        self.place_of: dict[Buf, int] = {}
        self.freed = set(program.frees.items.tolist())
        self.read_first: dict[int, list[int]] = {}
        """Transfers to this device by the row that reads them first."""
        self.read_last: dict[int, list[int]] = {}
        moves = program.moves
        for move in np.flatnonzero(program.schedule.table.device[moves.reader] == device).tolist():
            self.read_first.setdefault(int(moves.reader[move]), []).append(move)
            self.read_last.setdefault(int(moves.last_reader[move]), []).append(move)

    def lane(self) -> Lane:
        table = self.program.schedule.table
        rows = np.flatnonzero(table.device == self.device).tolist()
        steps = tuple(map(self._step, rows))
        first = [m for m in self.program.posts.after(len(table)) if self._arrives(m)]
        return Lane(self.device, steps, tuple(map(self._received, first)), len(self.place_of) + 2)

    def _step(self, row: int) -> Step:
        program = self.program
        op = program.schedule.table.op(row)
        sent = range(program.moves.start[row], program.moves.start[row + 1])
        return Step(
            row=row,
            op=op,
            unit=self.shape.first_unit[op.mb] + op.slice,
            places=self._places(op),
            waits=tuple(map(self._received, self.read_first.get(row, ()))),
            sends=tuple(map(self._sent, sent)),
            frees=tuple(self._freed(row, sent)),
            posts=tuple(map(self._received, program.posts.after(row))),
        )

    def _places(self, op: Op) -> Places:
        """Places of what the table says the op writes and reads."""
        found = dict.fromkeys(Places._fields, NOTHING) | {"out": DROPPED}
        for buf in writes(op, self.shape):
            found["out" if buf.name in OUTWARDS else buf.name] = self._place(buf)
        found |= {buf.name: self._place(buf) for buf in reads(op, self.shape)}
        return Places(*(found[name] for name in Places._fields))

    def _place(self, buf: Buf) -> int:
        """Slices of one allocation share its place."""
        if BUFFERS[buf.name].per == "microbatch":
            buf = buf._replace(slice=0)
        return self.place_of.setdefault(buf, len(self.place_of) + 2)

    def _freed(self, row: int, sent: range) -> list[int]:
        """What is used last here, received or written here, and what was only written to be sent:
        the transport keeps it."""
        moved = self.program.moved
        bufs = [self.program.buf(index) for index in self.program.frees.after(row)]
        bufs += [moved(move) for move in self.read_last.get(row, ())]
        bufs += [buf for buf in map(moved, sent) if self._dense(buf) not in self.freed]
        return [self.place_of[buf] for buf in bufs if buf in self.place_of]

    def _dense(self, buf: Buf) -> int:
        unit = self.shape.first_unit[buf.mb] + buf.slice
        return self.program.bufs[buf.name][0] + buf.number * self.shape.units + unit

    def _arrives(self, move: int) -> bool:
        return self.program.channels[int(self.program.channel[move])].target == self.device

    def _received(self, move: int) -> Post:
        return self._post(move, self.program.channels[self.program.channel[move]].source)

    def _sent(self, move: int) -> Post:
        return self._post(move, self.program.channels[self.program.channel[move]].target)

    def _post(self, move: int, peer: int) -> Post:
        buf = self.program.moved(move)
        return Post(peer, move, self._place(buf), self.shape.first_unit[buf.mb] + buf.slice, buf)
