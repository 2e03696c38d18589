"""What one process can see of another on the same machine.

Silence has many reasons: an interpreter that is held by an import, a machine that is too busy, a
process that was stopped or is gone. On one machine the system knows which, and nobody has to guess.
"""

import os
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
    try:
        told = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return GONE
    return _STATES.get(told.rpartition(")")[2].split()[0], THERE)
