"""Signals to the launcher reach the ranks, once each.

The ranks stand in process groups of their own, so that a key pressed at the terminal reaches only
the launcher: an interrupt would otherwise come twice, and a stop would freeze the store under ranks
that go on.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any

from torch._C._distributed_c10d import Store

from penstock.run.launch.processes import RankProcesses
from penstock.run.watchdog import first_cause

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Passing:
    """Hands signals on to the ranks while the block lasts; only a main thread can."""

    def __init__(self, members: RankProcesses, store: Store) -> None:
        self.members, self.store = members, store
        self.last = 0
        """The last signal that was passed on, or 0."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Passing":
        if threading.current_thread() is threading.main_thread():
            for number in PASSED_ON:
                if signal.getsignal(number) != signal.SIG_IGN:  # nohup means what it says
                    self._before[number] = signal.signal(number, self._pass_on)
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._pause)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def interrupted(self) -> bool:
        """Whether somebody has pressed the key that means now."""
        return self.last == signal.SIGINT

    @property
    def code(self) -> int:
        """The exit code of a program that such a signal ended."""
        return 128 + self.last

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and not self.interrupted:
            # what follows from it is silent
            first_cause.claim(self.store, first_cause.LAUNCHER, "interrupted")
        self.last = number
        self.members.send(number)

    def repeat(self) -> None:
        """Once all ranks are started: a signal that came meanwhile has not reached all of them."""
        if self.last:
            self.members.send(self.last)

    def _pause(self, number: int, frame: FrameType | None) -> None:
        self.members.send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self.members.send(signal.SIGCONT)
