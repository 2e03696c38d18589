"""One direction between two devices: a communicator, and what goes over it.

The two ends of a communicator must launch the same transfers in the same order, and neither may
launch before both are ready (run/comm/nccl.py says why). Which transfer is ready first differs from
step to step, so the order is found on the way. The ends tell each other tags over the host:

    receiver   the slot of 7 is free                   names 7
    sender     7 is computed and has been named        names 7, launches its send
    receiver   hears 7                                 launches its receive

Both launch in the order in which the sender names, and a transfer that is not ready holds up no
other. Slots are named ahead: as a rule a send is launched as soon as its tensor is computed. The
two launches are kept together by two more messages (run/comm/launch_window.py says why).

Each end has two threads, with one CUDA stream. One waits for its device, the other for names. It
listens only while something that was submitted here has not been named: that name must come. When
all transfers are done nobody listens, and closing waits for nobody.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.run.comm.both_ready import BothReady, Transfer
from penstock.run.comm.launch_window import HOST_DEVICE, LaunchWindow, neighbour_over_host
from penstock.run.comm.side_stream import Ticket, mark_of

Failed = Callable[[BaseException], None]
"""Told when a thread has failed."""


class End:
    """One end of a pair."""

    operation: str
    """What the back end calls a transfer as this end sees it."""

    def __init__(
        self,
        group: ProcessGroup,
        device: torch.device,
        number: int,
        window: LaunchWindow,
        failed: Failed,
    ) -> None:
        """`number` tells this use of a group from earlier ones: messages that those have left
        behind must not be heard."""
        self._device, self._window, self._failed = device, window, failed
        self._peer = 1 - group.rank()
        self._host: Any = group._get_backend(HOST_DEVICE)
        self._wire: Any = getattr(group._get_backend(device), self.operation)
        self._name_tag, self._wire_tag, window_tag = (3 * number + kind for kind in range(3))
        other = neighbour_over_host(self._host, self._peer, window_tag)
        self._below = other if group.rank() == 1 else None
        self._above = other if group.rank() == 0 else None
        self._said, self._heard = (torch.zeros(1, dtype=torch.int64) for _ in range(2))
        self._stream = _stream_on(device)
        self._transfers = BothReady()
        self._submitted: SimpleQueue[Transfer | None] = SimpleQueue()
        self._launching = Lock()
        self._threads = [
            Thread(target=self._work, args=(work,), daemon=True, name="penstock-pair")
            for work in (self._follow_device, self._follow_names)
        ]

    def connect(self) -> None:
        """The first transfer of a communicator blocks until the other end makes it too."""
        self._wire([torch.zeros(1, device=self._device)], self._peer, self._wire_tag).wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        for thread in self._threads:
            thread.start()

    def submit(self, tag: int, tensor: Tensor) -> Ticket:
        """Move a tensor once both ends can, after all that the current stream has still to do."""
        transfer = Transfer(tag, tensor, mark_of(self._device), Ticket())
        self._transfers.add(transfer)
        self._submitted.put(transfer)
        return transfer.ticket

    def fail(self, failure: BaseException) -> None:
        """Give up everything that has not been launched."""
        self._transfers.fail(failure)

    def close(self) -> None:
        """End the threads. What still waits for the other end is given up: a thread that listens
        in vain ends with the process."""
        gone = self._transfers.close()
        self._submitted.put(None)
        for thread in self._threads if gone else ():
            thread.join()

    def _is_ready(self, tag: int) -> None:
        """The device of this end is ready for a transfer."""
        self._launch(self._transfers.note_ready(tag))

    def _move(self, transfer: Transfer) -> None:
        """Start, and let the current stream wait for the end; so does a host without streams."""
        with self._window.between(self._below, self._above):
            self._wire([transfer.tensor], self._peer, self._wire_tag).wait()

    def _say(self, tag: int) -> None:
        self._said.fill_(tag)
        self._host.send([self._said], self._peer, self._name_tag).wait()

    def _hear(self) -> int:
        self._host.recv([self._heard], self._peer, self._name_tag).wait()
        return int(self._heard)

    def _work(self, work: Callable[[], None]) -> None:
        try:
            with _on(self._stream):
                work()
        except BaseException as failure:  # raised again by whoever waits
            self.fail(failure)
            self._failed(failure)

    def _follow_device(self) -> None:
        while (transfer := self._submitted.get()) is not None:
            tag, mark = transfer.tag, transfer.mark
            del transfer  # what has left must not wait for the next one to be let go of
            if mark is not None:
                mark.synchronize()
            self._is_ready(tag)

    def _follow_names(self) -> None:
        while self._transfers.awaits_name():
            self._launch(self._transfers.note_named(self._hear()))

    def _launch(self, transfer: Transfer | None) -> None:
        """Both threads may come here: what is said and what is launched must be in one order."""
        if transfer is None:
            return
        try:
            with self._launching:
                self._move(transfer)
                mark = mark_of(self._device)
        except BaseException as failure:
            transfer.ticket.done(failure)
            raise
        transfer.ticket.done(mark=mark)


class SendingEnd(End):
    """Names a transfer when it launches it."""

    operation = "send"

    def _move(self, transfer: Transfer) -> None:
        self._say(transfer.tag)
        super()._move(transfer)
        if self._stream is not None:  # memory that is still read is not given out again
            transfer.tensor.record_stream(self._stream)


class ReceivingEnd(End):
    """Names a transfer when its slot is free. It is ready then, so that it is always the thread
    that hears names which launches, in the order of the names."""

    operation = "recv"

    def _is_ready(self, tag: int) -> None:
        super()._is_ready(tag)
        self._say(tag)


def _stream_on(device: torch.device) -> torch.cuda.Stream | None:
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _on(stream: torch.cuda.Stream | None) -> AbstractContextManager[Any]:
    """The stream as the current one of this thread, and its device with it."""
    if stream is None:
        return nullcontext()
    torch.cuda.set_device(stream.device)
    return torch.cuda.stream(stream)
