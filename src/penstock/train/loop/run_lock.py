"""One run in a folder at a time: two would take back each other's records and checkpoints."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import RunError, ShapeError

LOCK = ".running"


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Hold the folder until the block ends or the process does, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ShapeError(
            f"cannot make {str(folder)!r}: {error.strerror}", hint="set run.directory"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise RunError(
            f"another run is at work in {str(folder)!r}",
            hint="wait for it or end it, or give this one another run.directory",
        ) from None
    except OSError as error:
        os.close(lock)
        raise ShapeError(
            f"cannot lock {str(folder / LOCK)!r}: {error.strerror}",
            hint="give run.directory on a file system with locks; a second run there would not be "
            "noticed",
        ) from None
    try:
        yield
    finally:
        os.close(lock)
