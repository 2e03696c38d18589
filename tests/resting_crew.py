"""Ranks that stand still while they have no job.

Each group of gloo keeps a thread awake a hundred times a second. Crews that all tests share have
hundreds of groups, and most of the time all but one of them wait: that took a quarter of a machine
with two cores.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from signal import SIGCONT, SIGSTOP
from typing import Any

from penstock.run.launch.worker_pool import Crew


class RestingCrew(Crew):
    """A crew whose ranks are stopped between their jobs."""

    def run(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        self._send_to_all(SIGCONT)
        try:
            return super().run(job, *args, **kwargs)
        finally:
            self._send_to_all(SIGSTOP)

    def dismiss(self) -> None:
        self._send_to_all(SIGCONT)
        super().dismiss()

    def _send_to_all(self, number: int) -> None:
        for member in self._members:
            with suppress(ProcessLookupError):
                os.kill(member.process.pid, number)
