"""Which transfers of one end of a pair are ready at both ends.

A transfer is submitted here, becomes ready here, and is named by the other end. The last two come
in any order and from two threads, and a name may come before anything was submitted. Whoever notes
the second of the two is given the transfer, once.
"""

from collections.abc import Iterable
from threading import Condition
from typing import Any, NamedTuple

from torch import Tensor

from penstock.run.comm.side_stream import Ticket


class Transfer(NamedTuple):
    """One tensor that is to move; its tag is used by no other transfer under way."""

    tag: int
    tensor: Tensor
    mark: Any
    """Work of the device that must have ended before: the tensor computed, or its memory free."""
    ticket: Ticket


class BothReady:
    """Transfers that are under way, by tag."""

    def __init__(self) -> None:
        self._change = Condition()
        """Guards all the others."""
        self._waiting: dict[int, Transfer] = {}
        self._ready: set[int] = set()
        self._named: set[int] = set()
        self._failure: BaseException | None = None
        self._closed = False

    def add(self, transfer: Transfer) -> None:
        """A transfer that was submitted; after a failure nothing is taken any more."""
        with self._change:
            if self._failure is not None:
                raise self._failure
            if transfer.tag in self._waiting:
                raise AssertionError(f"transfer {transfer.tag} is under way already")
            self._waiting[transfer.tag] = transfer
            self._change.notify()

    def note_ready(self, tag: int) -> Transfer | None:
        """The device of this end is ready; returns the transfer if the other end is too."""
        return self._note(self._ready, tag)

    def note_named(self, tag: int) -> Transfer | None:
        """The other end is ready; returns the transfer if this end is too."""
        return self._note(self._named, tag)

    def awaits_name(self) -> bool:
        """Wait until something that was submitted has not been named; false after the end."""
        with self._change:
            self._change.wait_for(lambda: self._ended or not self._waiting.keys() <= self._named)
            return not self._ended

    def fail(self, failure: BaseException) -> None:
        """Tell everybody who waits that nothing will move any more."""
        with self._change:
            self._failure = self._failure or failure
            given_up = [*self._waiting.values()]
            self._waiting.clear()
            self._change.notify()
        _tell(given_up, failure)

    def close(self) -> bool:
        """Await no more names; returns whether everything that was submitted has gone."""
        with self._change:
            self._closed = True
            self._change.notify()
            return not self._waiting and self._failure is None

    @property
    def _ended(self) -> bool:
        return self._closed or self._failure is not None

    def _note(self, facts: set[int], tag: int) -> Transfer | None:
        with self._change:
            facts.add(tag)
            if not (tag in self._ready and tag in self._named and tag in self._waiting):
                return None
            self._ready.remove(tag)
            self._named.remove(tag)
            return self._waiting.pop(tag)


def _tell(transfers: Iterable[Transfer], failure: BaseException) -> None:
    for transfer in transfers:
        transfer.ticket.done(failure)
