"""A process that does not outlive the one that started it.

A rank may wait in a transfer for a partner that waits as well; if whoever started them dies without
a word, nobody is left to end them.
"""

import os
import time
from threading import Thread

VARIABLE = "PENSTOCK_PARENT"
"""Process that a rank belongs to; its other descendants, which inherit this, do not look at it."""
LOOK = 1.0
"""Seconds between two looks at the parent."""
ORPHANED = 1
"""Exit code of a process whose parent is gone."""


def hold() -> None:
    """End this process soon after its parent, if that is what the parent asked for."""
    parent = os.getppid()
    if os.environ.get(VARIABLE) == str(parent):
        Thread(target=_look, args=(parent,), name="lifeline", daemon=True).start()


def _look(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(ORPHANED)
