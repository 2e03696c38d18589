"""Python's search for reference cycles, put aside while many objects are made that have none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_resting() -> Iterator[None]:
    """Look for no reference cycles: tuples of numbers have none to find.

    The search would take as long as making a million of them.
    """
    working = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if working:
            gc.enable()
