"""Processes that bound and simulate candidates, as many as there are cores.

A process keeps what it has worked out: pieces of the problem, and schedules. Whoever gives tasks
may say which of them have something in common, so that a schedule is made in one process alone.
What comes out does not depend on their number. They are started before anything is bounded, because
each has to load the compiler.
"""

import os
import signal
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from types import TracebackType
from typing import Any, Protocol

from penstock.core.collector import collector_resting
from penstock.core.kernel import compile_small_work
from penstock.errors import RunError
from penstock.planner.bounding import SharedPieces
from penstock.planner.problem import PlanProblem


class Task(Protocol):
    """Something that a process can do with the pieces of a problem."""

    def run(self, pieces: SharedPieces) -> Any: ...


def usable_cores() -> int:
    """Cores that this process may use; 1 where processes cannot be forked, which start slowly."""
    if "fork" not in get_all_start_methods() or not hasattr(os, "sched_getaffinity"):
        return 1
    return len(os.sched_getaffinity(0))


class PlanProcesses:
    """Processes for one problem; with one of them, everything is done here."""

    def __init__(self, problem: PlanProblem, count: int = 1) -> None:
        self.pieces = SharedPieces(problem)
        self.count = max(count, 1)
        self._lines: list[Connection] = []
        self._processes: list[ForkProcess] = []
        self._homes: dict[Hashable, int] = {}
        """Which of them has what tasks of a key have in common."""
        if count > 1:
            context = get_context("fork")
            for _ in range(count):
                here, there = context.Pipe()
                others = (*self._lines, here)
                process = context.Process(target=_serve, args=(there, others, problem), daemon=True)
                process.start()
                there.close()
                self._lines.append(here)
                self._processes.append(process)

    def __enter__(self) -> "PlanProcesses":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A process ends when nobody is at the other end of its line; what it is doing is not
        needed any more."""
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def run(
        self, tasks: Sequence[Task], keys: Sequence[Hashable] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """The number of each task with what came out of it, as they are done. Tasks of one key are
        done by one process, also later on, as long as others have something to do: it has what they
        have in common."""
        if self._lines:
            yield from self._shared(tasks, keys or [None] * len(tasks))
            return
        for number, task in enumerate(tasks):
            with compile_small_work(), collector_resting():
                found = task.run(self.pieces)
            yield number, found

    def _shared(self, tasks: Sequence[Task], keys: Sequence[Hashable]) -> Iterator[tuple[int, Any]]:
        waiting = [*range(len(tasks))]
        busy: dict[Connection, int] = {}
        while waiting or busy:
            for home, line in enumerate(self._lines):
                number = self._next(waiting, keys, home) if line not in busy else None
                if number is not None:
                    waiting.remove(number)
                    busy[line] = number
                    _to(line, tasks[number])
            for line in (line for line in wait([*busy]) if isinstance(line, Connection)):
                yield busy.pop(line), _from(line)

    def _next(self, waiting: Sequence[int], keys: Sequence[Hashable], home: int) -> int | None:
        """The first task for a process: one whose key is its own, or nobody's yet; else the last
        one that waits for another, which costs less than to do nothing."""
        for number in waiting:
            key = keys[number]
            if key is None or self._homes.setdefault(key, home) == home:
                return number
        return waiting[-1] if waiting else None


def _to(line: Connection, task: Task) -> None:
    with suppress(BrokenPipeError):  # said when the answer is read
        line.send(task)


def _from(line: Connection) -> Any:
    try:
        found = line.recv()
    except (EOFError, ConnectionResetError):
        raise RunError(
            "a process that simulated candidates was ended by the system",
            hint="memory may be short: give --mesh or --schedule, so that fewer are searched",
        ) from None
    if isinstance(found, BaseException):
        raise found
    return found


def _serve(line: Connection, others: Sequence[Connection], problem: PlanProblem) -> None:
    """What a process does until its line is closed. An interrupt is for the one that asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    pieces = SharedPieces(problem)
    with compile_small_work(), collector_resting(), suppress(EOFError, BrokenPipeError):
        while True:
            task: Task = line.recv()
            try:
                found = task.run(pieces)
            except Exception as error:  # a mistake of ours is to be seen where it is asked for
                found = error
            line.send(found)
