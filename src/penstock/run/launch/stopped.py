"""Children that stand still because they were sent SIGSTOP.

A stopped process says nothing, and before its first beat nobody listens either. Its parent can ask
the system, at any time and without guessing from silence. Seconds are counted in rounds of the one
that asks: it may have been stopped itself.
"""

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from penstock.run.launch.start import RankProcess
from penstock.run.process.exit_codes import FAILED

LONGEST_ROUND = 0.5
"""Seconds that a round counts at most."""
FROZEN = 3.5
"""Seconds after which a stopped rank is given up, unless told otherwise."""


class RankStop(NamedTuple):
    """A rank that was stopped and not woken up again."""

    rank: int
    seconds: float
    code: int = FAILED
    """What the run leaves with."""

    @property
    def hint(self) -> str:
        return "another process or a user sent it SIGSTOP"

    def __str__(self) -> str:
        return f"rank {self.rank} has been stopped for {self.seconds:.1f} s"


class Stops:
    """How long each child has been stopped."""

    def __init__(self, limit: float = FROZEN) -> None:
        self._limit = limit
        self._seconds: dict[int, float] = {}
        self._last = time.monotonic()

    def look(self, processes: Sequence[RankProcess]) -> RankStop | None:
        """The rank, of these from 0 on, that has been stopped for too long. All at once are paused
        by somebody, who may let them go on."""
        now = time.monotonic()
        elapsed, self._last = min(now - self._last, LONGEST_ROUND), now
        stopped = [rank for rank, process in enumerate(processes) if _is_stopped(process.pid)]
        if len(stopped) == len(processes):
            stopped = []
        self._seconds = {rank: self._seconds.get(rank, 0.0) + elapsed for rank in stopped}
        longest = max(stopped, key=lambda rank: self._seconds[rank], default=None)
        if longest is None or self._seconds[longest] < self._limit:
            return None
        return RankStop(longest, self._seconds[longest])


def _is_stopped(child: int) -> bool:
    """False also where a system has no way to ask."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False
