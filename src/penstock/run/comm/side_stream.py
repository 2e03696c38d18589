"""Side streams: copies and collectives that run beside the compute lane.

Each side stream of a device is a thread that does one thing after the other. On a GPU the thread
issues its work to a CUDA stream of its own. The host goes on at once; whoever needs the result
waits for its ticket. On a CPU the thread does the work itself, so that overlap and order are real
there too.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import torch


class Ticket:
    """One piece of work of a stream; `wait` returns when its result can be used here.

    On a GPU that means by the current stream: the host waits only until the work was issued.
    """

    def __init__(self) -> None:
        self._issued = Event()
        self._mark: torch.cuda.Event | None = None
        self._failure: BaseException | None = None

    def wait(self) -> None:
        self._issued.wait()
        if self._failure is not None:
            raise self._failure
        if self._mark is not None:
            self._mark.wait()

    def done(self, failure: BaseException | None = None, *, mark: Any = None) -> "Ticket":
        self._failure, self._mark = failure, mark
        self._issued.set()
        return self


def mark_of(device: torch.device) -> Any:
    """A mark in the current stream of a GPU; None where work is done when it returns."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


class SideStream:
    """Does what it is given, in order, on a thread and a CUDA stream of its own."""

    def __init__(self, name: str, device: torch.device) -> None:
        self._device = device
        self._queue: SimpleQueue[tuple[Callable[[], None], Ticket] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, daemon=True, name=f"penstock-{name}")
        self._thread.start()

    def submit(self, work: Callable[[], None], after: Iterable[Ticket] = ()) -> Ticket:
        """Do this once the tickets are done and everything submitted before is."""
        ticket, waited = Ticket(), tuple(after)

        def run() -> None:
            for earlier in waited:
                earlier.wait()
            work()

        self._queue.put((run, ticket))
        return ticket

    def close(self) -> None:
        """End the thread when its work is done."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        with self._stream():
            while (item := self._queue.get()) is not None:
                self._do(*item)
                del item  # what the work holds must not wait for the next one

    def _do(self, work: Callable[[], None], ticket: Ticket) -> None:
        try:
            work()
        except BaseException as failure:  # raised again by whoever waits for it
            ticket.done(failure)
        else:
            ticket.done(mark=mark_of(self._device))

    def _stream(self) -> AbstractContextManager[Any]:
        if self._device.type != "cuda":
            return nullcontext()
        torch.cuda.set_device(self._device)
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(stream)
