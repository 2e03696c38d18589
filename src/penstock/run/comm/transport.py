"""How a tensor gets from one device to another.

A transfer waits on its channel and never on the compute lane, so sending returns at once and
receiving returns something to wait for. The tensor that is sent must stay until it has left: that
is the transport's business, and the executor forgets it at once.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor

from penstock.core.program import Channel
from penstock.run.program.calls import Post


class Arrival(Protocol):
    """A transfer under way; `wait` returns when its tensor can be used."""

    def wait(self) -> Any: ...


class Transport(Protocol):
    """Moves tensors between the devices of one pipeline."""

    def open(self, channels: Iterable[Channel]) -> None:
        """Make ready what transfers on these channels need; all ranks do so together."""
        ...

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

    def open(self, channels: Iterable[Channel]) -> None:
        return None

    def send(self, post: Post, tensor: Tensor) -> None:
        raise AssertionError(f"one device sends to {post.peer}")

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        raise AssertionError(f"one device receives from {post.peer}")

    def drain(self) -> None:
        return None

    def close(self) -> None:
        return None
