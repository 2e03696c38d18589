"""The processes of a run: which are there, how the others ended, and how to end them all."""

import signal
import time
from typing import NamedTuple

from penstock.run.launch.start import RankProcess
from penstock.run.process.exit_codes import DONE

STOPPING_POLL = 0.02
"""Seconds between two looks at processes that have been told to stop."""


class RankExit(NamedTuple):
    """How a rank ended; a negative code is a signal."""

    rank: int
    code: int

    @property
    def well(self) -> bool:
        """Whether it left of its own accord, with its work done or saved."""
        return self.code in DONE

    @property
    def hint(self) -> str:
        if self.code == -signal.SIGKILL:
            return "another process killed it; the kernel does so when memory runs out (see dmesg)"
        return ""

    def __str__(self) -> str:
        if self.code < 0:
            return f"rank {self.rank} was killed by {_name(-self.code)}"
        return f"rank {self.rank} exited with code {self.code}"


def _name(number: int) -> str:
    known = {member.value: member.name for member in signal.Signals}
    return known.get(number, f"signal {number}")


class RankProcesses:
    """Processes by rank; none outlives the block."""

    def __init__(self) -> None:
        self.processes: list[RankProcess] = []
        self.ended: list[RankExit] = []

    def __enter__(self) -> "RankProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        self.send(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def add(self, process: RankProcess) -> None:
        self.processes.append(process)

    @property
    def running(self) -> list[int]:
        gone = {end.rank for end in self.ended}
        return [rank for rank in range(len(self.processes)) if rank not in gone]

    def look(self) -> list[RankExit]:
        """The ranks that have ended since the last look."""
        news = [
            RankExit(rank, code)
            for rank in self.running
            if (code := self.processes[rank].poll()) is not None
        ]
        self.ended += news
        return news

    def send(self, number: int) -> None:
        """A signal to every rank that is there."""
        for rank in self.running:
            self.processes[rank].send_signal(number)

    def end(self, own_way: float, notice: float) -> None:
        """Wait a moment, tell them to stop, and kill those that do not."""
        for seconds, number in ((own_way, signal.SIGTERM), (notice, signal.SIGKILL)):
            self._wait(seconds)
            self.send(number)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            self.look()
            time.sleep(STOPPING_POLL)
