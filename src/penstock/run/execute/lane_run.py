"""One pass over a lane: what is held, what is under way, and one call after the other."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.core.buffers import ALL
from penstock.model.attention.piece import Piece
from penstock.run.comm.side_stream import SideStream, Ticket, mark_of
from penstock.run.comm.transport import Arrival, Transport
from penstock.run.execute.boundary import Landings
from penstock.run.execute.driver import braid, finish
from penstock.run.execute.loans import Helper, LoansOfPass
from penstock.run.execute.memory_reads import MemoryReads
from penstock.run.execute.observer import Observer
from penstock.run.execute.spans import Spans
from penstock.run.program.beginning import Beginning
from penstock.run.program.calls import DROPPED, Call, Join, Post
from penstock.run.program.values import Values

Summing = Callable[[Join, list[Any]], Any]
"""Puts this device's parts of a collective together with those of the other members."""


LEFT = "left"
"""The side stream of sums that a pass leaves under way: collectives do not queue behind them."""


class Turn(NamedTuple):
    """A call with its handler and what that works with; or the strands of a braided pair. A call
    with loans is a strand too, beside what is computed for other devices."""

    at: int
    """Its place among the calls of the pass."""
    call: Call
    handler: Callable[..., Any]
    subject: Any
    loss: int
    """The place where it leaves a loss; NOTHING, which is 0, where it has none."""
    strands: "tuple[Turn, ...]" = ()
    begin: Callable[..., Beginning] | None = None
    """What the main thread does when it submits the call to a side stream."""
    plain: bool = False
    """Whether the call has to do with nothing but transfers and the compute lane."""


class Stretch(NamedTuple):
    """Turns that follow each other, all plain or none."""

    plain: bool
    turns: tuple[Turn, ...]


class Surroundings(NamedTuple):
    """What a pass works with, the same from batch to batch."""

    device: torch.device
    transport: Transport
    landings: Landings
    sums: Summing
    stream: Callable[[str], SideStream]


class LaneRun:
    """A pass over a lane with one batch."""

    def __init__(
        self,
        around: Surroundings,
        observer: Observer,
        values: Values,
        pieces: Sequence[Piece],
        spans: Spans,
        helper: Helper,
    ) -> None:
        self.around, self.observer, self.spans = around, observer, spans
        self.values, self.pieces = values, pieces
        self.losses: list[Tensor] = []
        self.totals: dict[str, Tensor] = {}
        self.left: list[Ticket] = []
        """Sums whose total no op reads: they may go on when the pass has ended."""
        self._transport, self._clock = around.transport, spans.clock
        self._loans = LoansOfPass(around.device, around.transport, observer, helper, pieces)
        self._arrivals: dict[int, Arrival] = {}
        self._tickets: dict[int, Ticket] = {}
        self._reads = MemoryReads(around.device)
        self._began = Ticket().done(mark=mark_of(around.device))
        """What was computed before the pass, as the update of the weights that are gathered."""

    def go(self, stretches: Sequence[Stretch], first: Sequence[Post]) -> None:
        """Post what can be received before anything runs, then take every turn."""
        for post in first:
            self._receive(post)
        for stretch in stretches:
            if stretch.plain:
                self._compute(stretch.turns)
            else:
                self._take(stretch.turns)
        for ticket in self._tickets.values():
            ticket.wait()

    def drop(self, unread: Sequence[Post]) -> None:
        """Give up a pass whose lane has stopped: let the side streams end what they were given,
        and take what others have sent and no call has waited for."""
        for ticket in self._tickets.values():
            ticket.wait()
        for post in unread:
            if post.tag not in self._arrivals:
                self._receive(post)
            self._arrivals.pop(post.tag).wait()

    def _compute(self, turns: Sequence[Turn]) -> None:
        """Calls of the compute lane, one after the other. Nearly all ops come through here, and a
        function for each of these lines would cost about what the line does."""
        observer, clock, values, pieces = self.observer, self._clock, self.values, self.pieces
        arrivals, start, end = self._arrivals, self.spans.start, self.spans.end
        for at, call, handler, subject, loss, *_ in turns:
            for post in call.waits:
                observer.waits(call, post)
                arrivals.pop(post.tag).wait()
            observer.runs(call)
            unit = call.unit
            piece = pieces[unit] if unit >= 0 else None
            start[at] = clock()
            work = handler(subject, piece, values, call.reads, call.writes)
            if work is not None:
                finish(work)
            end[at] = clock()
            observer.ran(call)
            self._after(call, loss)

    def _take(self, turns: Sequence[Turn]) -> None:
        """Calls that have to do with other streams, or with other calls."""
        for turn in turns:
            if turn.strands:
                self._braid(turn.strands)
            elif turn.call.stream == "compute":
                self._compute_beside(turn)
            else:
                self._submit(turn)

    def _compute_beside(self, turn: Turn) -> None:
        """A call of the compute lane that other streams wait for, or that waits for them."""
        self._wait_for_streams(turn.call)
        self._compute((turn,))
        self._announce(turn.call)

    def _submit(self, turn: Turn) -> None:
        """A call of a side stream; what was received for it is waited for there."""
        call = turn.call
        after = [self._tickets[awaited] for awaited in call.awaits] or [self._began]
        if turn.begin is not None:
            after += self._begin(turn, turn.begin)
        ticket = self.around.stream(call.stream).submit(partial(self._beside, turn), after)
        self._tickets[call.number] = ticket
        for post in call.posts:
            self._receive(post)
        self._join(call, ticket)

    def _begin(self, turn: Turn, begin: Callable[..., Beginning]) -> list[Ticket]:
        """Do the part of the main thread; returns what the call has to wait for because of it."""
        call = turn.call
        begun = begin(turn.subject, self.pieces[call.unit], self.values, call.reads, call.writes)
        self._reads.add(call.number, call.stream, begun.let_go)
        return [Ticket().done(mark=mark_of(self.around.device))] if begun.took_memory else []

    def _beside(self, turn: Turn) -> None:
        for post in turn.call.waits:
            self._arrivals.pop(post.tag).wait()
        self.spans.start[turn.at] = self._clock()
        finish(self._handle(turn))
        self.spans.end[turn.at] = self._clock()
        self._let_go(turn.call)
        if not self._reads.ends_when_awaited:
            self._reads.end(turn.call.number)

    def _braid(self, strands: Sequence[Turn]) -> None:
        """Calls that start when all of them can, and the ops that share loans with them; they take
        turns whenever one has to wait."""
        for strand in strands:
            self._wait_for_streams(strand.call)
            self._wait_for_transfers(strand.call)
        self._loans.meet([strand.call for strand in strands])
        self.observer.runs(strands[0].call)
        start = self._clock()
        braid(self._works(strands))
        end = self._clock()
        for strand in strands:
            self.spans.start[strand.at], self.spans.end[strand.at] = start, end
            self.observer.ran(strand.call)
            self._after(strand.call, strand.loss)
            self._announce(strand.call)

    def _works(self, strands: Sequence[Turn]) -> Iterator[Any]:
        """What is computed for other devices, which expects messages before anything else is done,
        and the strands."""
        for strand in strands:
            yield from self._loans.helped(strand.call)
        for strand in strands:
            if not strand.call.away:
                yield self._handle_with_loans(strand) if strand.call.meets else self._handle(strand)

    def _handle_with_loans(self, turn: Turn) -> Any:
        call = turn.call
        piece = self._loans.piece(call)
        return turn.handler(turn.subject, piece, self.values, call.reads, call.writes)

    def _handle(self, turn: Turn) -> Any:
        call = turn.call
        piece = self.pieces[call.unit] if call.unit >= 0 else None
        return turn.handler(turn.subject, piece, self.values, call.reads, call.writes)

    def _wait_for_transfers(self, call: Call) -> None:
        for post in call.waits:
            self.observer.waits(call, post)
            self._arrivals.pop(post.tag).wait()

    def _wait_for_streams(self, call: Call) -> None:
        for awaited in call.awaits:
            observed = self.observer.copies if awaited in self._reads else self.observer.joins
            observed(call)
            self._tickets[awaited].wait()
            if self._reads.ends_when_awaited:
                self._reads.end(awaited)

    def _announce(self, call: Call) -> None:
        """Tell side streams that a call of the compute lane is done."""
        if call.awaited or call.joins:
            done = self._tickets[call.number] = Ticket().done(mark=mark_of(self.around.device))
            self._join(call, done)

    def _after(self, call: Call, loss: int) -> None:
        """Take the loss, send, free, and post what can be received now."""
        if loss:
            self.losses.append(self.values[loss])
        self._let_go(call)
        for post in call.posts:
            self._receive(post)

    def _let_go(self, call: Call) -> None:
        values, transport = self.values, self._transport
        values[DROPPED] = None
        for post in call.sends:
            transport.send(post, values[post.place])
        for place in call.frees:
            values[place] = None

    def _receive(self, post: Post) -> None:
        self.values[post.place] = tensor = self.around.landings.empty(post, self.pieces)
        self._arrivals[post.tag] = self._transport.receive(post, tensor)

    def _join(self, call: Call, done: Ticket) -> None:
        """Put together over devices what this call was the last to have a part of."""
        for join in call.joins:
            waited = join.read or join.buf.number == ALL
            stream = self.around.stream("collective" if waited else LEFT)
            parts = [done, *(self._tickets[call] for call in join.awaits)]
            ticket = stream.submit(partial(self._add_up, join), parts)
            if waited:
                self._tickets[join.ticket] = ticket
            else:
                self.left.append(ticket)

    def _add_up(self, join: Join) -> None:
        total = self.around.sums(join, [self.values[place] for place in join.parts])
        self.values[join.total] = total if join.read else None
        if join.buf.number != ALL:
            self.totals[join.buf.name] = total
