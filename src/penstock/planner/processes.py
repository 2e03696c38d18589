"""Processes that bound and simulate candidates, as many as there are cores.

A process keeps what it has worked out: pieces of the problem, and schedules. Whoever gives tasks
may say which of them have something in common, so that a schedule is made in one process alone.
What comes out does not depend on their number. Records of schedules are looked at before they are
started, so that they have these, and the compiler, from the beginning.
"""

import os
import signal
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from penstock.core.collector import collector_resting
from penstock.core.kernel import compile_small_work
from penstock.errors import RunError
from penstock.parent_process import Tie, hold_to, tie
from penstock.planner.bounding import SharedPieces
from penstock.planner.problem import PlanProblem
from penstock.planner.records import all_work


class Task(Protocol):
    """Something that a process can do with the pieces of a problem."""

    def run(self, pieces: SharedPieces) -> Any: ...


class Given(NamedTuple):
    """A task that nobody has begun."""

    ticket: int
    task: Task
    key: Hashable


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
        self._waiting: list[Given] = []
        self._busy: dict[Connection, int] = {}
        self._done: dict[int, Any] = {}
        self._tickets = 0
        self._lines: list[Connection] = []
        self._processes: list[ForkProcess] = []
        self._homes: dict[Hashable, int] = {}
        """Which of them has what tasks of a key have in common."""
        if count > 1:
            with compile_small_work():
                all_work()
            context, tied = get_context("fork"), tie()
            for _ in range(count):
                here, there = context.Pipe()
                others = (*self._lines, here)
                process = context.Process(
                    target=_serve, args=(there, others, problem, tied), daemon=True
                )
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
        """The number of each task with what came out of it, as they are done."""
        return self.results(self.begin(tasks, keys))

    def begin(self, tasks: Sequence[Task], keys: Sequence[Hashable] | None = None) -> range:
        """Give tasks behind those that were given before; returns their tickets. Tasks of one key
        are done by one process, also later on, as long as others have something to do: it has what
        they have in common."""
        tickets = range(self._tickets, self._tickets + len(tasks))
        self._tickets = tickets.stop
        self._waiting += map(Given, tickets, tasks, keys or [None] * len(tasks))
        self._hand_out()
        return tickets

    def results(self, tickets: range) -> Iterator[tuple[int, Any]]:
        """The place of each ticket with what came out of its task, as they are done."""
        left = {*tickets}
        while left:
            for ticket in sorted(left & self._done.keys()):
                left.remove(ticket)
                yield tickets.index(ticket), self._done.pop(ticket)
            if left:
                self._go_on()

    def tell(self, task: Task) -> None:
        """Have every process do the same, and this one; none has anything else to do."""
        for line in self._lines:
            _to(line, task)
        task.run(self.pieces)
        for line in self._lines:
            _from(line)

    def _go_on(self) -> None:
        """Wait until some task is done, or do the next one here."""
        if not self._lines:
            given = self._waiting.pop(0)
            with compile_small_work(), collector_resting():
                self._done[given.ticket] = given.task.run(self.pieces)
            return
        for line in (line for line in wait([*self._busy]) if isinstance(line, Connection)):
            self._done[self._busy.pop(line)] = _from(line)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give each process that has nothing to do its next task."""
        for home, line in enumerate(self._lines):
            if self._waiting and line not in self._busy:
                given = self._waiting.pop(self._next(home))
                self._busy[line] = given.ticket
                _to(line, given.task)

    def _next(self, home: int) -> int:
        """Where the first task for a process waits: one whose key is its own, or nobody's yet; else
        the last one that waits for another, which costs less than to do nothing."""
        for at, given in enumerate(self._waiting):
            if given.key is None or self._homes.setdefault(given.key, home) == home:
                return at
        return len(self._waiting) - 1


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


def _serve(line: Connection, others: Sequence[Connection], problem: PlanProblem, tied: Tie) -> None:
    """What a process does until its line is closed, be it with an answer that nobody has read. It
    ends in the middle of a task where the one that asked is ended. An interrupt is for that one."""
    hold_to(tied)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    pieces = SharedPieces(problem)
    with compile_small_work(), collector_resting(), suppress(EOFError, ConnectionError):
        while True:
            task: Task = line.recv()
            try:
                found = task.run(pieces)
            except Exception as error:  # a mistake of ours is to be seen where it is asked for
                found = error
            line.send(found)
