"""How a tensor gets from one device to another.

A transfer waits on its channel and never on the compute lane, so sending returns at once and
receiving returns something to wait for. The tensor that is sent must stay until it has left: that
is the transport's business, and the executor forgets it at once.
"""

from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.run.program.compiled import Post


class Arrival(Protocol):
    """A transfer under way; `wait` returns when its tensor can be used."""

    def wait(self) -> Any: ...


class Transport(Protocol):
    """Moves tensors between the devices of one pipeline."""

    def send(self, post: Post, tensor: Tensor) -> None: ...

    def receive(self, post: Post, tensor: Tensor) -> Arrival: ...

    def drain(self) -> None:
        """Return when everything sent has left."""
        ...

    def close(self) -> None:
        """End what works at the side."""
        ...


class Alone:
    """The transport of a pipeline of one device, which has nobody to send to."""

    def send(self, post: Post, tensor: Tensor) -> None:
        raise AssertionError(f"one device sends to {post.peer}")

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        raise AssertionError(f"one device receives from {post.peer}")

    def drain(self) -> None:
        return None

    def close(self) -> None:
        return None


SMALL = 1 << 16
"""Bytes that may wait for company before the side thread is woken, which takes the main thread
a fifth of what it does for a microbatch."""


class Gloo:
    """CPU tensors through one process group; a member's number there is its device.

    Only waiting for a send tells that it has left, so a side thread waits, in order, and lets go
    of the tensors. What fails there is raised by the next call of the main thread.
    """

    def __init__(self, group: ProcessGroup) -> None:
        # The object behind the group: going through the functions of torch.distributed costs a
        # third more for each transfer.
        self._backend: Any = group._get_backend(torch.device("cpu"))
        self._sent: list[tuple[Any, Tensor]] = []
        self._bytes = 0
        self._leaving: SimpleQueue[list[tuple[Any, Tensor]] | Event | None] = SimpleQueue()
        self._failure: BaseException | None = None
        Thread(target=self._reap, daemon=True, name="penstock-sends").start()

    def send(self, post: Post, tensor: Tensor) -> None:
        self._refuse_failed()
        self._sent.append((self._backend.send([tensor], post.peer, post.tag), tensor))
        self._bytes += tensor.nbytes
        if self._bytes > SMALL:
            self._hand_over()

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        self._refuse_failed()
        arrival: Arrival = self._backend.recv([tensor], post.peer, post.tag)
        return arrival

    def drain(self) -> None:
        gone = Event()
        self._hand_over()
        self._leaving.put(gone)
        gone.wait()
        self._refuse_failed()

    def close(self) -> None:
        """End the side thread."""
        self._leaving.put(None)

    def _hand_over(self) -> None:
        self._leaving.put(self._sent)
        self._sent, self._bytes = [], 0

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _reap(self) -> None:
        while (item := self._leaving.get()) is not None:
            if isinstance(item, Event):
                item.set()
            else:
                self._wait(item)
            del item  # the last tensor must not outlive its send until the next one comes

    def _wait(self, sent: list[tuple[Any, Tensor]]) -> None:
        try:
            while sent:
                sent[0][0].wait()
                del sent[0]
        except RuntimeError as error:
            self._failure = self._failure or error
