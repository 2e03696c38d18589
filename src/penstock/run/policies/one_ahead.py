"""Something that every step needs, made while the step before runs.

A plan takes tens of milliseconds to make, and needs only what is known a step ahead. A thread makes
it while the devices compute; compiled loops let the others go on meanwhile.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Generic, NamedTuple, TypeVar

Made = TypeVar("Made")


class MakingTimes(NamedTuple):
    """Seconds of the last thing that was taken."""

    making: float
    """What it took to make it."""
    waiting: float
    """What of that was waited for."""


class OneAhead(Generic[Made]):
    """Makes the next one at the side; whoever asks for another one waits while it is made."""

    def __init__(self, make: Callable[[int], Made]) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="next-plan")
        self._number = -1
        self._next: Future[tuple[Made, float]] | None = None
        self.times = MakingTimes(0.0, 0.0)

    def take(self, number: int, following: int) -> Made:
        """The one of this number; the following one is begun."""
        began = perf_counter()
        ahead = self._next if number == self._number else None
        made, seconds = ahead.result() if ahead else self._timed(number)
        self.times = MakingTimes(seconds, perf_counter() - began)
        self._number, self._next = following, self._pool.submit(self._timed, following)
        return made

    def close(self) -> None:
        """End the thread, once it has made what it has begun."""
        self._pool.shutdown(cancel_futures=True)

    def _timed(self, number: int) -> tuple[Made, float]:
        began = perf_counter()
        return self._make(number), perf_counter() - began
