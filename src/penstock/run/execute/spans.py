"""When ops ran: marks that cost next to nothing while they are taken.

On the host a mark is a count of nanoseconds. On a GPU it is an event in its stream, because the
host runs ahead; what time that was is asked when somebody wants to know.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import torch

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
    """Marks around the ops of one run of a lane."""

    origin: Any
    """A mark, taken at `began` nanoseconds of the host's clock."""
    began: int
    start: list[Any] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)

    @classmethod
    def begin(cls, clock: Clock) -> "Spans":
        return cls(clock(), perf_counter_ns())

    def seconds(self) -> float:
        """Time of all ops together."""
        return sum(self._between(start, end) for start, end in zip(self.start, self.end)) * 1e-9

    def extent(self) -> float:
        """Seconds from the first start to the last end."""
        return self._between(self.start[0], self.end[-1]) * 1e-9 if self.start else 0.0

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
