"""Groups of two in one process, whose messages go through queues and can be made to fail."""

from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

LONGEST = 60.0
"""Seconds after which a message that has not come is lost."""


class Line:
    """What two groups share: a queue for each receiver and tag, and the tags that were used."""

    def __init__(self) -> None:
        self._queues: dict[tuple[int, int], SimpleQueue[Tensor]] = {}
        self.sent: list[tuple[int, int]] = []
        """Receiver and tag of each message, in order."""
        self.cut: str = ""
        """Why nothing can be sent any more."""

    def queue(self, receiver: int, tag: int) -> SimpleQueue[Tensor]:
        return self._queues.setdefault((receiver, tag), SimpleQueue())


class Arriving:
    """A message that is to be received, or has been sent."""

    def __init__(
        self, queue: SimpleQueue[Tensor] | None = None, into: Tensor | None = None
    ) -> None:
        self._queue, self._into = queue, into

    def wait(self) -> None:
        if self._queue is not None and self._into is not None:
            self._into.copy_(self._queue.get(timeout=LONGEST))


class TwoRanks:
    """One member's view of a group of two, and its back end."""

    def __init__(self, line: Line, rank: int) -> None:
        self._line, self._rank = line, rank

    def rank(self) -> int:
        return self._rank

    def _get_backend(self, device: torch.device) -> "TwoRanks":
        return self

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Arriving:
        if self._line.cut:
            raise RuntimeError(self._line.cut)
        self._line.sent.append((peer, tag))
        self._line.queue(peer, tag).put(tensors[0].clone())
        return Arriving()

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Arriving:
        return Arriving(self._line.queue(self._rank, tag), tensors[0])


class Row:
    """The mesh of one device of a row, with a line for each pair that includes it."""

    def __init__(self, device: int, lines: dict[tuple[int, int], Line]) -> None:
        self.device, self._lines = device, lines

    def take_number(self) -> int:
        return 0

    def pair(self, source: int, target: int) -> Any:
        return TwoRanks(self._lines[source, target], int(self.device == max(source, target)))
