"""A transport whose messages arrive late, as over a network that other jobs use too.

A message waits at a thread of its sender and takes no time of the compute lane, and messages wait
side by side: the delay is a latency, not a lack of bandwidth.
"""

from collections.abc import Iterable
from queue import SimpleQueue
from threading import Event, Thread
from time import perf_counter, sleep

from torch import Tensor

from penstock.core.program import Channel
from penstock.run.comm.transport import Arrival, Transport
from penstock.run.program.calls import Post


class Delayed:
    """Sends `seconds` later than it is told to; that may be changed between steps."""

    def __init__(self, inner: Transport) -> None:
        self._inner, self.seconds = inner, 0.0
        self._waiting: SimpleQueue[tuple[float, Post, Tensor] | Event | None] = SimpleQueue()
        Thread(target=self._send_later, daemon=True, name="penstock-delays").start()

    def open(self, channels: Iterable[Channel]) -> None:
        self._inner.open(channels)

    def send(self, post: Post, tensor: Tensor) -> None:
        self._waiting.put((perf_counter() + self.seconds, post, tensor))

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        return self._inner.receive(post, tensor)

    def drain(self) -> None:
        gone = Event()
        self._waiting.put(gone)
        gone.wait()
        self._inner.drain()

    def close(self) -> None:
        self._waiting.put(None)
        self._inner.close()

    def _send_later(self) -> None:
        while (item := self._waiting.get()) is not None:
            if isinstance(item, Event):
                item.set()
                continue
            due, post, tensor = item
            sleep(max(0.0, due - perf_counter()))
            self._inner.send(post, tensor)
