"""What one process can see of another on the same machine.

Silence has many reasons: an interpreter that is held by an import, a machine that is too busy, a
process that was stopped or is gone. On one machine the system knows which, and nobody has to guess.
"""

import os
from collections.abc import Collection
from functools import cache
from pathlib import Path

STOPPED, GONE, THERE, UNKNOWN = "stopped", "gone", "there", "unknown"

_STATES = {"T": STOPPED, "Z": GONE, "X": GONE}
"""Letters of /proc/PID/stat; with all others a process runs or waits."""


@cache
def machine_name() -> str:
    """What processes have in common that see each other; nothing where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def own_name() -> str:
    """By which this process is known to its neighbours."""
    return f"{machine_name()}/{os.getpid()}"


def state_of(name: str) -> str:
    """STOPPED, GONE or THERE for a process of this machine, UNKNOWN for any other."""
    where, _, number = name.rpartition("/")
    if not where or where != machine_name():
        return UNKNOWN
    return _state(number)


def stopped_siblings(ranks: Collection[int]) -> list[int]:
    """Which of some ranks of this run are stopped and have the parent of this process.

    They may not have said anything yet: they are known by the variables that they were started
    with.
    """
    wanted = {_place_words(rank): rank for rank in ranks}
    found = []
    for number in _children(os.getppid()):
        if _state(number) == STOPPED:
            words = set(_variables(number))
            found += [rank for place, rank in wanted.items() if place <= words]
    return found


_PLACE = ("RANK=", "MASTER_ADDR=", "MASTER_PORT=")
"""By which a rank and its run are known."""


def _place_words(rank: int) -> frozenset[str]:
    """The variables of another rank of this run, as they stand in its environment."""
    same = {f"{name}{os.environ.get(name[:-1], '')}" for name in _PLACE[1:]}
    return frozenset({f"RANK={rank}", *same})


def _children(parent: int) -> list[str]:
    """Numbers of the processes that a process has started; none where the system does not say."""
    lists = Path(f"/proc/{parent}/task").glob("*/children")
    return [number for each in lists for number in _told(each).split()]


def _variables(number: str) -> list[str]:
    return _told(Path(f"/proc/{number}/environ")).split("\0")


def _state(number: str) -> str:
    told = _told(Path(f"/proc/{number}/stat"))
    return _STATES.get(told.rpartition(")")[2].split()[0], THERE) if told else GONE


def _told(path: Path) -> str:
    """What the system says of a process; nothing once that is gone."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
