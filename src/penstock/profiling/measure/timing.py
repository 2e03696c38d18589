"""How long something takes, over and over.

On a GPU many calls are timed together by its own clock, and the median counts. A small kernel is
shorter than its launch. In a step the host is ahead, so launches cost nothing there; here the GPU
first waits until all calls are launched, or it would be the host that is measured.

On the host one thread computes, as in a rank of a run, and its CPU time is taken. What disturbs a
thread (other processes, their use of caches) only adds time to it, so there the least counts. Where
the ranks of a run are what disturbs, no step is without it: of their steps the median counts.
"""

from collections.abc import Callable, Iterable
from statistics import median_low
from time import perf_counter, thread_time_ns
from typing import NamedTuple

import torch

from penstock.run.execute.spans import Clock, gpu_mark

TIMED_TOGETHER = {"cpu": 0.005, "cuda": 0.015}
"""Seconds of calls that are timed together; a GPU needs some to have the clock of a step."""
KERNEL_ROUNDS = 3
MOST_CALLS = {"cpu": 1_000, "cuda": 200}
"""Calls that are timed together; the queue of a GPU holds about a thousand kernels."""
LAUNCH_MARGIN = 1.5
"""How much longer a GPU waits than the launches took, for those that take longer this time."""
CYCLES = 2e9
"""Of a GPU in a second, at most."""
LONG = 0.5
"""Seconds of a call after which it is not called again."""


class Rounds(NamedTuple):
    """How often things are measured."""

    rounds: int
    """Times that all is measured, one after the other: a machine that others use is slower for
    seconds."""
    steps: int
    """Steps that count, in each."""
    first: int
    """Steps before them."""
    ranks: int = 1
    """Ranks of a host that do this at the same time."""


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


def usual(seconds: Iterable[float], device: torch.device, ranks: int = 1) -> float:
    """What something takes, of several times that so many ranks measured it."""
    return median_low(seconds) if device.type == "cuda" or ranks > 1 else min(seconds)


def kernel_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of a call in some rounds, after calls that find kernels and memory."""
    call()
    mark = profile_clock(device)
    once = max(seconds_of_calls(call, mark), 1e-7)
    if once > LONG:
        return once
    kind = device.type
    calls = max(1, min(MOST_CALLS[kind], round(TIMED_TOGETHER[kind] / once)))
    wait = gpu_waits(launch_seconds(call, calls)) if kind == "cuda" else lambda: None
    rounds = (wait() or seconds_of_calls(call, mark, calls) for _ in range(KERNEL_ROUNDS))
    return usual(rounds, device)


def launch_seconds(call: Callable[[], object], calls: int) -> float:
    """Seconds of the host for some calls to a GPU that has nothing else to do."""
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(calls):
        call()
    took = perf_counter() - start
    torch.cuda.synchronize()
    return took


def gpu_waits(seconds: float) -> Callable[[], None]:
    """Makes a GPU wait until calls are launched that take the host so long."""
    cycles = round(LAUNCH_MARGIN * seconds * CYCLES)
    return lambda: torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def one_thread(device: torch.device) -> None:
    """Let the host compute with one thread where it is what is measured."""
    if device.type == "cpu":
        torch.set_num_threads(1)
