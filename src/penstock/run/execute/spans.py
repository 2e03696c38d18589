"""When calls ran: marks that cost next to nothing while they are taken.

On the host a mark is a count of nanoseconds. On a GPU it is an event in its stream, because the
host runs ahead; what time that was is asked when somebody wants to know.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import torch

from penstock.run.program.calls import Call

Clock = Callable[[], Any]
"""Takes a mark."""


def gpu_mark() -> Any:
    """A mark in the stream of the current GPU."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def clock_of(device: torch.device) -> Clock:
    """The clock that suits a device."""
    return gpu_mark if device.type == "cuda" else perf_counter_ns


@dataclass(eq=False)
class Spans:
    """Marks around the calls of one pass over a lane."""

    clock: Clock
    calls: Sequence[Call]
    origin: Any
    """A mark, taken at `began` nanoseconds of the host's clock."""
    began: int
    start: list[Any] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)

    @classmethod
    def begin(cls, clock: Clock, calls: Sequence[Call]) -> "Spans":
        room: list[Any] = [None] * len(calls)
        return cls(clock, calls, clock(), perf_counter_ns(), room, room.copy())

    def seconds(self) -> float:
        """Time of all ops that work on the batch together."""
        return sum(self._between(self.start[at], self.end[at]) for at in self._batch()) * 1e-9

    def extent(self) -> float:
        """Seconds from the start of the first op on the batch to the end of the last."""
        on_batch = self._batch()
        if not on_batch:
            return 0.0
        return self._between(self.start[on_batch[0]], self.end[on_batch[-1]]) * 1e-9

    def _batch(self) -> list[int]:
        """Calls that work on a part of the batch; the end of the step is no part of its lane."""
        return [at for at, call in enumerate(self.calls) if call.unit >= 0]

    def nanoseconds(self) -> tuple[list[int], list[int]]:
        """Starts and ends by the host's clock."""
        if isinstance(self.origin, int):
            return self.start, self.end
        starts = [self.began + round(self._between(self.origin, mark)) for mark in self.start]
        return starts, [self.began + round(self._between(self.origin, mark)) for mark in self.end]

    def _between(self, first: Any, second: Any) -> float:
        """Nanoseconds from one mark to another."""
        if isinstance(first, int):
            return float(second - first)
        second.synchronize()
        return float(first.elapsed_time(second)) * 1e6
