"""Several processes want the same file: one makes it while the others wait.

This saves work and nothing more. Whoever gets no turn (no locks on this file system, a holder that
stands still) makes the file under a name of its own, and renaming settles who comes last.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

LOCK_PATIENCE = 600.0
"""Seconds after which waiting is given up."""
LOCK_PAUSE = 0.05
"""Seconds between two looks."""


@contextmanager
def wait_for_turn(target: Path) -> Iterator[Path]:
    """Wait for the turn to make `target`; the path is where to write until it is renamed.

    The holder of the turn has a fixed name, so that what a killed process leaves is written over.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(target.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        mine = _taken(lock)
        yield target.with_suffix(".part" if mine else f".{secrets.token_hex(8)}.part")
    finally:
        os.close(lock)  # a lock goes with its file, also when the process is killed


def _taken(lock: int) -> bool:
    end = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(LOCK_PAUSE)
        except OSError:
            return False
