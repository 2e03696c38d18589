"""A crew of ranks on this machine that are started once and given many jobs.

Starting a process costs seconds, most of them for importing torch; a comparison of every schedule,
a bench or a test suite has hundreds of jobs of milliseconds. A job is a function of a module that
every rank calls with its connection:

    with Crew(4) as crew:
        sums = crew.run(total, 3)        # [total(connection, 3) of rank 0, of rank 1, ...]

A rank that raises, dies or never answers ends the job with an error that names it. The ranks that
are then left in the middle of a transfer are of no use: the next job finds a new crew.
"""

import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection as Line
from multiprocessing.connection import Pipe, wait
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from penstock.errors import RunError, ShapeError
from penstock.run.launch.start import LocalRanks, RankProcess
from penstock.run.launch.stopped import Stops
from penstock.run.process.rendezvous import Connection

Given = ParamSpec("Given")
Result = TypeVar("Result")

GRACE = 2.0
"""Seconds that the other ranks have to answer after one has failed."""
LEAVE = 5.0
"""Seconds that a rank has to leave when the crew is dismissed."""
ROUND = 0.25
"""Seconds after which ranks that do not answer are looked at."""


class JobAnswer(NamedTuple):
    """What one rank made of a job."""

    result: Any = None
    failure: str = ""
    """The rank's traceback, or how it ended."""
    alive: bool = True


class Member(NamedTuple):
    """A rank's process and the line to it."""

    process: RankProcess
    line: Line


class Crew:
    """Ranks that are started at the first job and wait for the next."""

    def __init__(self, ranks: int, *, limit: float = 600.0, back_end: str = "gloo") -> None:
        """`limit` is how many seconds a job may take; without a back end the ranks agree on one."""
        if ranks < 1:
            raise ShapeError(f"a crew of {ranks} ranks", hint="take at least 1")
        self.ranks = ranks
        self.limit = limit
        self.back_end = back_end
        self._members: list[Member] = []
        self._places: LocalRanks | None = None

    def __enter__(self) -> "Crew":
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def run(
        self,
        job: Callable[Concatenate[Connection, Given], Result],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> list[Result]:
        """What every rank returns, rank 0 first."""
        work = pickle.dumps((job, args, kwargs))
        self._start()
        try:
            for member in self._members:
                _send(member.line, work)
            answers = self._gather()
        except BaseException:
            self._end()  # answers that nobody waits for would be taken for those of the next job
            raise
        failed = [rank for rank, answer in enumerate(answers) if answer.failure]
        if (failed and len(failed) < self.ranks) or not all(answer.alive for answer in answers):
            self._end()
        if failed:
            raise _failure(answers, failed)
        return [answer.result for answer in answers]

    def dismiss(self) -> None:
        """Let the ranks leave; those that do not are ended."""
        for member in self._members:
            member.line.close()
        deadline = time.monotonic() + LEAVE
        for member in self._members:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        self._end()

    def kill(self) -> None:
        """End the ranks, from another thread than the one that waits for them: its job fails."""
        for member in self._members:
            member.process.kill()

    def _start(self) -> None:
        if not self._members:
            self._places = places = LocalRanks(self.ranks)
            self._members = [self._member(rank, places) for rank in range(self.ranks)]

    def _member(self, rank: int, places: LocalRanks) -> Member:
        here, there = Pipe()
        with there:
            program = [sys.executable, "-m", "penstock.run.launch.worker", str(there.fileno())]
            process = places.start(rank, program, descriptors=[there.fileno()])
        here.send((sys.path, self.back_end))
        return Member(process, here)

    def _end(self) -> None:
        for member in self._members:
            member.line.close()
            member.process.kill()
        for member in self._members:
            member.process.wait()
        self._members = []
        self._places = None

    def _gather(self) -> list[JobAnswer]:
        """An answer of every rank; the first bad one leaves the others only a short time."""
        answers: dict[int, JobAnswer] = {}
        deadline, stops = time.monotonic() + self.limit, Stops()
        while len(answers) < self.ranks and time.monotonic() < deadline:
            busy = [rank for rank in range(self.ranks) if rank not in answers]
            lines = [self._members[rank].line for rank in busy]
            ready = wait(lines, timeout=max(0.0, min(ROUND, deadline - time.monotonic())))
            if stop := stops.look([member.process for member in self._members]):
                answers[stop.rank] = JobAnswer(None, f"stopped for {stop.seconds:.1f} s", False)
                break
            for rank in (rank for rank, line in zip(busy, lines) if line in ready):
                answers[rank] = _receive(self._members[rank])
                if answers[rank].failure:
                    deadline = min(deadline, time.monotonic() + GRACE)
        blamed = any(answer.failure for answer in answers.values())
        silent = "" if blamed else f"no answer after {self.limit:g} s"
        return [answers.get(rank, JobAnswer(None, silent, False)) for rank in range(self.ranks)]


def _send(line: Line, work: bytes) -> None:
    try:
        line.send_bytes(work)
    except OSError:
        return  # the rank is gone; reading its answer says how


def _receive(member: Member) -> JobAnswer:
    try:
        result, failure = pickle.loads(member.line.recv_bytes())
    except (EOFError, OSError):
        code = member.process.wait()
        return JobAnswer(None, _ended(code), False)
    return JobAnswer(result, failure)


def _ended(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exited with code {code}"


def _failure(answers: Sequence[JobAnswer], failed: Sequence[int]) -> RunError:
    """The error of the rank to blame: one that died before one that raised."""
    first = min(failed, key=lambda rank: answers[rank].alive)
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return RunError(f"rank {first} of {len(answers)}{others}: {answers[first].failure.strip()}")
