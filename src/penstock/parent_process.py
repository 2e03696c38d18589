"""A process that does not outlive the one that started it.

A rank may wait in a transfer for a partner that waits as well; if whoever started them dies without
a word, nobody is left to end them. The parent's number does not say enough: a parent that dies
before its child has looked once was never seen. So a parent keeps one end of a pipe open for as
long as it lives, and its children wait at the other end, from their first line on. On Linux the
kernel is asked as well, because a child that is stopped or has lost its interpreter cannot wait.

torchrun's agent knows nothing of this. Its ranks look at the number of their parent: a rank whose
agent dies has lost its store too, but would look for it for minutes. The agent's own parent, and
whoever starts a rank by hand, may leave as they like.
"""

import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from signal import SIGKILL
from typing import NamedTuple

VARIABLE = "PENSTOCK_PARENT"
"""Where a child that is another program finds its tie."""
TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Set by torchrun's agent for its ranks."""
LOOK = 0.5
"""Seconds between two looks at the number of the parent."""
_TOLD = re.compile(r"\d{1,9}:\d{1,19}:[01]", re.ASCII)
FIRST = 1
"""The process that takes over those whose parent has gone."""
ORPHANED = 1
"""Exit code of a process whose parent is gone."""

_SET_SIGNAL_OF_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG of <linux/prctl.h>."""


class Tie(NamedTuple):
    """What a child needs to know to notice the end of its parent."""

    descriptor: int
    """The end of the pipe that a child waits at; whoever starts it lets it inherit this."""
    number: int
    """The inode of the pipe: descendants of the child that know the variable do not have it."""
    steady: int
    """1 where the thread that starts the child lasts as long as the process. The kernel reports the
    death of that thread."""

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: ":".join(map(str, self))}


def tie() -> Tie:
    """What a process that is about to be started is to be given."""
    descriptor = _pipe()[0]
    steady = threading.current_thread() is threading.main_thread()
    return Tie(descriptor, os.fstat(descriptor).st_ino, int(steady))


@cache
def _pipe() -> tuple[int, int]:
    """One for all children; nothing is ever written to it."""
    return os.pipe()


def _let_go() -> None:
    """A fork must not hold open what is to close with its parent."""
    if _pipe.cache_info().currsize:
        os.close(_pipe()[1])
        _pipe.cache_clear()


os.register_at_fork(after_in_child=_let_go)


def hold() -> None:
    """End this process with its parent, if that has asked for it or is torchrun's agent."""
    told = os.environ.pop(VARIABLE, "")
    tied = Tie(*map(int, told.split(":"))) if _TOLD.fullmatch(told) else None
    if tied and _inherited(tied):  # or else it was meant for somebody between it and us
        hold_to(tied)
    elif TORCHRUN in os.environ:
        _follow_agent()


@cache
def _follow_agent() -> None:
    """Once: a rank asks for it at its first line, and again where it joins its run."""
    if _adopted():
        os._exit(ORPHANED)
    _start(_look, os.getppid())


def _adopted() -> bool:
    """Whether the agent has gone before this process looked for the first time, so that it is now a
    child of the first process. In a container that may be the agent itself, which is Python."""
    try:
        return (
            os.getppid() == FIRST and b"python" not in Path(f"/proc/{FIRST}/cmdline").read_bytes()
        )
    except OSError:
        return False


def hold_to(tied: Tie) -> None:
    """End this process with the parent that made this tie."""
    if tied.steady and sys.platform == "linux":
        ask_kernel()
    _start(_wait, tied.descriptor)


def _start(waiting: Callable[[int], None], number: int) -> None:
    threading.Thread(target=waiting, args=(number,), name="parent", daemon=True).start()


def _inherited(tied: Tie) -> bool:
    try:
        found = os.fstat(tied.descriptor)
    except OSError:
        return False
    return stat.S_ISFIFO(found.st_mode) and found.st_ino == tied.number


def ask_kernel() -> None:
    """Be killed when the thread ends that started this process, even while this one is stopped.
    Where the kernel refuses, the thread that waits for the parent is left."""
    import ctypes  # most processes that import this module need none of it

    ctypes.CDLL(None).prctl(_SET_SIGNAL_OF_PARENTS_DEATH, int(SIGKILL), 0, 0, 0)


def _look(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(ORPHANED)


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)  # returns when nobody is left to write
    os._exit(ORPHANED)
