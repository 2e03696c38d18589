"""A signal to stop, remembered until the step is over.

A cluster that wants its machines back sends SIGTERM and kills some seconds later. The handler only
notes it; the ranks tell each other at the end of the step and save together.
"""

import signal
import threading
from types import FrameType
from typing import Any

NOTED = (signal.SIGTERM, signal.SIGUSR1)


class Stopping:
    """Notes signals while the block lasts; only a main thread can."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        if threading.current_thread() is threading.main_thread():
            for number in NOTED:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
