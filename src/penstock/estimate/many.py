"""Many rows at once: shared by as many processes as there are cores, answered in their order.

An answer takes milliseconds and needs nothing of the others, so a long file is cut into pieces, and
each process answers some of them. A short one is answered here: processes take longer to start.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_all_start_methods, get_context

from penstock.errors import RunError
from penstock.estimate.answer import answer_lines
from penstock.parent_process import hold_to, tie

WORTH_PROCESSES = 400
"""Rows from which on several processes are faster than one."""
PIECE = 50
"""Rows that a process takes at a time."""


def answer_many(lines: Sequence[str]) -> Iterator[str]:
    """An answer for each line that is not empty, in their order."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if len(lines) < WORTH_PROCESSES or (cores or 1) < 2:
        yield from answer_lines(lines)
        return
    pieces = [lines[start : start + PIECE] for start in range(0, len(lines), PIECE)]
    try:
        with _pool(cores) as pool:
            for answers in pool.map(answer_piece, pieces):
                yield from answers
    except BrokenProcessPool:
        raise RunError(
            "a process that answered rows was ended by the system",
            hint="memory may be short: give the rows in several files",
        ) from None


def _pool(cores: int | None) -> ProcessPoolExecutor:
    """A pool waits for its next piece for ever, also where this process is ended by a signal. So
    its processes end with it; those that are not forked do not have the pipe that says so."""
    if "fork" not in get_all_start_methods():
        return ProcessPoolExecutor(cores, mp_context=get_context("spawn"))
    forked = get_context("fork")
    return ProcessPoolExecutor(cores, mp_context=forked, initializer=hold_to, initargs=(tie(),))


def answer_piece(lines: Sequence[str]) -> list[str]:
    """What one process does at a time."""
    return [*answer_lines(lines)]
