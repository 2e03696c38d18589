"""Work that may take too long: done by a process of its own, which is ended when time is up.

A record that searches may call a solver, which cannot be interrupted from outside. A process can.
"""

from collections.abc import Callable
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from penstock.parent_process import Tie, hold_to, tie

Result = TypeVar("Result")


class Attempt(Generic[Result]):
    """A function at work beside us, until its answer is asked for.

    Where processes cannot be forked it is called then, and takes the time it takes.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        if "fork" in get_all_start_methods():
            context = get_context("fork")
            self._line, theirs = context.Pipe(duplex=False)
            given = (theirs, function, tie())
            self._process = context.Process(target=_answer, args=given, daemon=True)
            self._process.start()
            theirs.close()

    def answer(self, seconds: float) -> Result | None:
        """What it returns within so many seconds from now; None if it fails or takes longer."""
        if "fork" not in get_all_start_methods():
            return self._function()
        try:
            return self._line.recv() if self._line.poll(max(seconds, 0.0)) else None
        except EOFError:
            return None
        finally:
            self._process.kill()
            self._process.join()
            self._line.close()


def _answer(connection: "Connection[Any, Any]", function: Callable[[], Any], tied: Tie) -> None:
    hold_to(tied)
    connection.send(function())
