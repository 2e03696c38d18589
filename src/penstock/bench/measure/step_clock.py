"""How long steps take on a device, and the most memory that it gave out meanwhile."""

from collections.abc import Callable
from gc import collect
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import torch

from penstock.run.execute.spans import clock_of

Found = TypeVar("Found")

LONG_ENOUGH = 15.0
"""Seconds of steps that are left out, after which no more are."""


class StepTimes(NamedTuple):
    """Steps that were timed one by one."""

    seconds: list[float]
    allocated: int
    """Most bytes that the allocator of the GPU gave out, weights and all; 0 on the host."""
    reserved: int
    """Most bytes that it took from the GPU."""


def time_steps(
    step: Callable[[], object], device: torch.device, steps: int, first: int
) -> StepTimes:
    """Time some steps after `first` ones, which find kernels and memory and are left out; fewer
    are where they take long."""
    start = perf_counter()
    for done in range(first):
        if done and perf_counter() - start > LONG_ENOUGH:
            break
        seconds_of(step, device)
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    seconds = [seconds_of(step, device) for _ in range(steps)]
    if device.type != "cuda":
        return StepTimes(seconds, 0, 0)
    return StepTimes(seconds, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())


def seconds_of(once: Callable[[], object], device: torch.device) -> float:
    """From an idle device to an idle device, by the device's own clock."""
    mark = clock_of(device)
    synchronise(device)
    start = mark()
    once()
    end = mark()
    synchronise(device)
    return _between(start, end)


def synchronise(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def give_back(device: torch.device) -> None:
    """Return the memory of what is no longer used, so that the next case finds all of it."""
    collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def unless_memory_ends(measure: Callable[[], Found], device: torch.device) -> Found | None:
    """What is measured; None where it needs more memory than the device has."""
    try:
        return measure()
    except RuntimeError as error:
        if not any(sign in str(error).lower() for sign in _MEMORY_ENDED):
            raise
    # Only here is the error gone, which holds on to all that was in use.
    give_back(device)
    return None


_MEMORY_ENDED = ("out of memory", "alloc_failed")
"""What errors say: of torch's allocator, and of a library that has memory of its own."""


def _between(start: Any, end: Any) -> float:
    """Nanoseconds of the host, or milliseconds between events."""
    if isinstance(start, int):
        return float(end - start) * 1e-9
    return float(start.elapsed_time(end)) * 1e-3
