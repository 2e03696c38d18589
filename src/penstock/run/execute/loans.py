"""Loans of attention work while the ops at their two ends run.

Both ops of a loan start when both can: each tells the other when what it waits for is there. Then
the op that lends sends work layer by layer, and what helps is another strand of the op on the other
device (run/execute/driver.py). Which op waits for which was proven with the schedule: the two are
one group there, so neither end waits for something that comes after the other.

An op that helps several others serves them in turn, layer by layer. The op that is behind all
others has got its answers for every layer before, so it comes to its next one; and with it all do.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from penstock.arch.query_shares import share_of_queries
from penstock.core.loans import GangShare
from penstock.model.attention.op_loans import LentWork, OpLoans
from penstock.model.attention.piece import Piece
from penstock.model.parallel.group import Work
from penstock.run.comm.transport import Arrival, Transport
from penstock.run.execute.boundary import order_token
from penstock.run.execute.observer import Observer
from penstock.run.program.calls import Call, LoanEnd


class Helper(Protocol):
    """Whoever computes attention for ops of other devices."""

    def help(self, kind: str, stage: int, piece: Piece, lent: LentWork) -> Work[None]:
        """Compute what an op of that kind and stage lends, which works on that piece."""
        ...


class NoHelper:
    """For programs without loans."""

    def help(self, kind: str, stage: int, piece: Piece, lent: LentWork) -> Work[None]:
        raise AssertionError(f"no device helps {kind} of stage {stage}")


class Arriving:
    """A message of a loan on its way here; once waited for it holds no memory."""

    def __init__(
        self, arrival: Arrival, begins: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        self._arrival: Arrival | None = arrival
        self._begins, self._ended = begins, ended

    def wait(self) -> None:
        if self._arrival is not None:
            self._begins()
            self._arrival.wait()
            self._arrival = None
            self._ended()


class LoanPeer(NamedTuple):
    """The other device of a loan, for the op at this end."""

    end: LoanEnd
    call: Call
    transport: Transport
    observer: Observer

    def send(self, number: int, flat: Tensor) -> None:
        self.transport.send(self.end.message(self.end.sent, number), flat)

    def receive(self, number: int, flat: Tensor) -> Arriving:
        post, observer = self.end.message(self.end.received, number), self.observer
        arrival = self.transport.receive(post, flat)
        waits = partial(observer.waits, self.call, post)
        return Arriving(arrival, waits, partial(observer.resumes, self.call))


class LoansOfPass(NamedTuple):
    """The loans of one pass over a lane."""

    device: torch.device
    transport: Transport
    observer: Observer
    helper: Helper
    pieces: Sequence[Piece]

    def meet(self, calls: Sequence[Call]) -> None:
        """Return when the ops at the other ends can start too."""
        peers = [self._peer(call, end) for call in calls for end in call.meets]
        arrivals = [peer.receive(0, order_token(self.device)) for peer in peers]
        for peer in peers:
            peer.send(0, order_token(self.device))
        for arrival in arrivals:
            arrival.wait()

    def helped(self, call: Call) -> Iterator[Work[None]]:
        """The work for other devices that belongs to a call."""
        for end in call.helps:
            helped, piece = end.helped, self.pieces[end.sent.unit]
            yield self.helper.help(helped.kind, helped.stage, piece, self._lent(call, end))

    def piece(self, call: Call) -> Piece:
        """What the op of a call works on, with what it lends."""
        lent = tuple(self._lent(call, end) for end in call.lends)
        return self.pieces[call.unit]._replace(loans=OpLoans(lent))

    def _lent(self, call: Call, end: LoanEnd) -> LentWork:
        """All queries with the keys of consecutive slices, or some queries with all their keys."""
        peer, piece, share = self._peer(call, end), self.pieces[end.sent.unit], end.share
        if isinstance(share, GangShare):
            queries = share_of_queries(piece.start, piece.end - piece.start, *share)
            return LentWork(peer, queries, range(queries.stop))
        first = end.sent.unit - end.helped.slice
        start = self.pieces[first + share.start].start
        stop = self.pieces[first + share.stop - 1].end
        return LentWork(peer, range(piece.start, piece.end), range(start, stop))

    def _peer(self, call: Call, end: LoanEnd) -> LoanPeer:
        return LoanPeer(end, call, self.transport, self.observer)
