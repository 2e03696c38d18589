"""A lock that ends with its process, however that ends: a file that one process at a time holds."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lock(path: Path) -> Iterator[bool]:
    """Hold a lock while the block lasts; false where another process has it.

    The file is deleted by whoever holds it, so nothing is left beside the user's own files. One
    that was deleted between opening and locking locks nothing: then it is tried again.
    """
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(number)
            yield False
            return
        except BaseException:
            os.close(number)
            raise
        if _is_at(path, number):
            break
        os.close(number)
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(number)


def _is_at(path: Path, number: int) -> bool:
    """Whether the open file is still the one at this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(number))
    except FileNotFoundError:
        return False
