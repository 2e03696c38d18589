"""Another device of the pipeline that works with this one while an op runs on both.

What the two tell each other are flat tensors, numbered from 0 in either direction. Both ends know
how large each of them is.
"""

from typing import Protocol

from torch import Tensor

from penstock.model.parallel.group import Pending


class Peer(Protocol):
    """The other device, as one end sees it."""

    def send(self, number: int, flat: Tensor) -> None:
        """Send a message, which must not be changed any more."""
        ...

    def receive(self, number: int, flat: Tensor) -> Pending:
        """Receive a message of the other device into a tensor of its size."""
        ...


class NothingPending:
    """Nothing to wait for: whoever drives the work may go on with other work first."""

    def wait(self) -> None:
        return None


TURN = NothingPending()
