"""How long something takes, over and over.

On a GPU many calls are timed together by its own clock, because one alone may be shorter than its
launch, and the median counts. On the host one thread computes, as in a rank of a run, and its CPU
time is taken. What disturbs a thread (other processes, their use of caches) only adds time to it,
so there the least counts.
"""

from collections.abc import Callable, Iterable
from statistics import median_low
from time import thread_time_ns

import torch

from penstock.run.execute.spans import Clock, gpu_mark

TIMED_TOGETHER = 0.005
"""Seconds of calls that are timed together."""
KERNEL_ROUNDS = 3
MOST_CALLS = 1_000
LONG = 0.5
"""Seconds of a call after which it is not called again."""


def profile_clock(device: torch.device) -> Clock:
    """Marks of a GPU's stream, or CPU time of this thread."""
    return gpu_mark if device.type == "cuda" else thread_time_ns


def between(start: object, end: object) -> float:
    """Seconds between two marks."""
    if isinstance(start, int) and isinstance(end, int):
        return (end - start) * 1e-9
    end.synchronize()  # type: ignore[attr-defined]
    return float(start.elapsed_time(end)) * 1e-3  # type: ignore[attr-defined]


def seconds_of_calls(call: Callable[[], object], mark: Clock, calls: int = 1) -> float:
    """Of one of some calls in a row, by a clock."""
    start = mark()
    for _ in range(calls):
        call()
    return between(start, mark()) / calls


def usual(seconds: Iterable[float], device: torch.device) -> float:
    """What something takes, of several times that it was measured."""
    return median_low(seconds) if device.type == "cuda" else min(seconds)


def kernel_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of a call in some rounds, after calls that find kernels and memory."""
    call()
    mark = profile_clock(device)
    once = max(seconds_of_calls(call, mark), 1e-7)
    if once > LONG:
        return once
    calls = max(1, min(MOST_CALLS, round(TIMED_TOGETHER / once)))
    return usual((seconds_of_calls(call, mark, calls) for _ in range(KERNEL_ROUNDS)), device)


def one_thread(device: torch.device) -> None:
    """Let the host compute with one thread where it is what is measured."""
    if device.type == "cpu":
        torch.set_num_threads(1)
