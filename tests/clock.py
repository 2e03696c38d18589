"""Limits of time that hold on a slow machine too.

A limit in seconds is a promise about a usual machine. One that others keep busy may be five times
slower for an hour, and says nothing about the code. So a limit that is missed is compared again, in
the time that a fixed piece of work takes at that moment.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time

USUAL = 0.1
"""Seconds that `_work` takes on a usual machine."""


@contextmanager
def within(seconds: float, clock: Callable[[], float] = process_time) -> Iterator[None]:
    """Fail if the block takes longer than so many seconds of a usual machine, also to an error."""
    start = clock()
    try:
        yield
    finally:
        taken = clock() - start
        assert taken < seconds or taken < seconds * slowness(clock), (
            f"{taken:.2f} s, which is more than {seconds:g} s of a usual machine"
        )


def slowness(clock: Callable[[], float] = perf_counter) -> float:
    """How many times longer than on a usual machine things take at this moment; at least 1."""
    taken = []
    for _ in range(3):
        start = clock()
        _work()
        taken.append(clock() - start)
    return max(1.0, sorted(taken)[1] / USUAL)


def _work() -> int:
    total = 0
    for number in range(1_500_000):
        total += number
    return total
