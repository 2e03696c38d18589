"""Crews of tests, whose ranks start in a moment.

A rank that is a program of its own imports torch first: seconds of a processor for each rank of
each crew, and a job that ends badly takes its crew with it. Here a rank is a fork of the server
that has imported it already.

Each group of gloo keeps a thread awake a hundred times a second. Crews that all tests share have
hundreds of groups, and most of the time all but one of them wait: that took a quarter of a machine
with two cores. So their ranks stand still while they have no job.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection as Line
from multiprocessing.connection import Pipe
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import _forkserver as SERVER  # noqa: N812
from signal import SIGCONT, SIGSTOP
from typing import Any

from fork_server import CONTEXT
from penstock.parent_process import ask_kernel
from penstock.run.launch.serve import serve
from penstock.run.launch.start import LocalRanks
from penstock.run.launch.worker_pool import Crew, Member
from penstock.run.process.environment import child_environment


class ForkedRank:
    """A fork with the words of a process that was started as a program."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        assert process.pid
        self.pid = process.pid
        self.kill = process.kill

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(["fork"], timeout or 0.0)
        return self._process.exitcode


class ForkedCrew(Crew):
    """A crew whose ranks are forks."""

    def _member(self, rank: int, places: LocalRanks) -> Member:
        here, there = Pipe()
        with there:
            environment = child_environment(places.place(rank))
            process = CONTEXT.Process(target=be_member, args=(environment, there), daemon=True)
            process.start()
        here.send((sys.path, self.back_end))
        return Member(ForkedRank(process), here)  # type: ignore[arg-type]


def be_member(environment: dict[str, str], line: Line) -> None:
    """What a fork does: serve the jobs of its crew, and end with the server, which ends with those
    that have asked for forks; forks themselves would keep it."""
    os.close(SERVER._forkserver_alive_fd)  # type: ignore[attr-defined]
    ask_kernel()
    os.environ.update(environment)
    serve(os.dup(line.fileno()))


class RestingCrew(ForkedCrew):
    """A crew whose ranks are stopped between their jobs."""

    def run(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        self._send_to_all(SIGCONT)
        try:
            return super().run(job, *args, **kwargs)
        finally:
            self._send_to_all(SIGSTOP)

    def dismiss(self) -> None:
        self._send_to_all(SIGCONT)
        super().dismiss()

    def _send_to_all(self, number: int) -> None:
        for member in self._members:
            with suppress(ProcessLookupError):
                os.kill(member.process.pid, number)
