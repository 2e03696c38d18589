"""How the benchmarks measure: the best of several runs, and the peak of one."""

import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Any


def best_of(
    repeats: int, work: Callable[[], Any], prepare: Callable[[], Any] = lambda: None
) -> float:
    """Seconds of the fastest run: what the code needs when nothing else disturbs it.

    `prepare` runs before each one and is not counted.
    """
    times = []
    for _ in range(repeats):
        prepare()
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


def peak_bytes(work: Callable[[], Any]) -> int:
    """Most memory that `work` held at any moment, in Python objects and numpy arrays."""
    tracemalloc.start()
    try:
        result = work()
        peak = tracemalloc.get_traced_memory()[1]
        del result
    finally:
        tracemalloc.stop()
    return peak
