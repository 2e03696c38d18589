"""Memory that calls of side streams still read, given back when they have ended.

Memory belongs to the stream that computes: once it is given back, the next op may get it. On a GPU
a call of another stream has only been issued when its handler returns, so its memory is kept until
the compute lane has waited for it, or for a later call of the same stream; the order of a schedule
says where that is, and the proof of its memory counts no earlier. On a CPU it has ended.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

import torch


class MemoryRead(NamedTuple):
    """What a call reads."""

    number: int
    let_go: Callable[[], None]


class MemoryReads:
    """Of one pass over a lane."""

    def __init__(self, device: torch.device) -> None:
        self.ends_when_awaited = device.type == "cuda"
        """Whether a call may still run when its handler has returned."""
        self._streams: dict[int, deque[MemoryRead]] = {}
        self._reads: dict[str, deque[MemoryRead]] = defaultdict(deque)

    def add(self, number: int, stream: str, let_go: Callable[[], None] | None) -> None:
        """A call that is submitted; what it reads, if anything, is not given back before its
        end."""
        reads = self._streams[number] = self._reads[stream]
        if let_go is not None:
            reads.append(MemoryRead(number, let_go))

    def __contains__(self, number: int) -> bool:
        """Whether a call of that number was submitted that takes memory or gives it back."""
        return number in self._streams

    def end(self, number: int) -> None:
        """A call has ended, and with it all that were submitted before it to its stream."""
        reads = self._streams.get(number)
        while reads and reads[0].number <= number:
            reads.popleft().let_go()
