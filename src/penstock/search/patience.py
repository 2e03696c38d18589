"""Work that may take too long: done by a process of its own, which is ended when time is up.

A record that searches may call a solver, which cannot be interrupted from outside. A process can.
"""

from collections.abc import Callable
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Result = TypeVar("Result")


def within(seconds: float, function: Callable[[], Result]) -> Result | None:
    """What a function returns, or None if it fails or takes longer.

    Where processes cannot be forked it is called here, and takes the time it takes.
    """
    if "fork" not in get_all_start_methods():
        return function()
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function), daemon=True)
    process.start()
    theirs.close()
    try:
        answer: Result | None = ours.recv() if ours.poll(max(seconds, 0.0)) else None
    except EOFError:
        answer = None
    finally:
        process.kill()
        process.join()
        ours.close()
    return answer


def _answer(connection: "Connection[Any, Any]", function: Callable[[], Any]) -> None:
    connection.send(function())
