"""Transfers of host tensors through gloo, and of GPU tensors by way of the host."""

from collections.abc import Iterable
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.core.program import Channel
from penstock.run.comm.transport import Arrival
from penstock.run.program.calls import Post

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
        self._lock = Lock()  # side streams send too
        self._sent: list[tuple[Any, Tensor]] = []
        self._bytes = 0
        self._leaving: SimpleQueue[list[tuple[Any, Tensor]] | Event | None] = SimpleQueue()
        self._failure: BaseException | None = None
        Thread(target=self._reap, daemon=True, name="penstock-sends").start()

    def open(self, channels: Iterable[Channel]) -> None:
        """Tags tell transfers apart, so one group serves all channels."""
        return

    def send(self, post: Post, tensor: Tensor) -> None:
        self._refuse_failed()
        with self._lock:
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
        with self._lock:
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


class Staged:
    """CUDA tensors by way of the host: several devices can share one GPU, which NCCL may refuse."""

    def __init__(self, group: ProcessGroup) -> None:
        self._host = Gloo(group)

    def open(self, channels: Iterable[Channel]) -> None:
        self._host.open(channels)

    def send(self, post: Post, tensor: Tensor) -> None:
        self._host.send(post, tensor.detach().cpu())

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        landing = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        return _Landing(self._host.receive(post, landing), landing, tensor)

    def drain(self) -> None:
        self._host.drain()

    def close(self) -> None:
        self._host.close()


class _Landing:
    """A transfer to the host that has still to go to the device."""

    def __init__(self, arrival: Arrival, landing: Tensor, tensor: Tensor) -> None:
        self._arrival, self._landing, self._tensor = arrival, landing, tensor

    def wait(self) -> None:
        self._arrival.wait()
        self._tensor.copy_(self._landing)
