"""Work that waits for other ranks, alone or braided with other work.

Where an op has to add up or exchange something with other ranks while it works, its handler is a
generator: it starts the communication, yields the pending handle, and goes on when it is resumed.
Alone, the driver waits for the handle at once. In a braided pair it goes on with the other strand
and waits when it comes back. The arithmetic of an op is the same either way.
"""

from collections import deque
from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any

from penstock.model.parallel.group import Pending, Result, Work, WorkOrResult


def when_done(work: WorkOrResult[Result], keep: Callable[[Result], None]) -> Work[None] | None:
    """Keep a result: at once if it is there already, else when the work for it is done."""
    if type(work) is GeneratorType:
        return _kept(work, keep)
    keep(work)  # type: ignore[arg-type]  # the type says so, in a way that takes no time
    return None


def _kept(work: Work[Result], keep: Callable[[Result], None]) -> Work[None]:
    keep((yield from work))


def finish(work: Any) -> None:
    """Let a handler's work come to its end; most handlers have none left when they return."""
    if type(work) is GeneratorType:
        for pending in work:
            pending.wait()
            del pending  # with what was sent and what landed, while the work goes on


def braid(strands: Iterable[Any]) -> None:
    """Let several works come to their end; while one waits, the next one goes on."""
    under_way: deque[tuple[Work[Any], Pending]] = deque()
    for work in strands:
        if type(work) is GeneratorType:
            _go_on(work, under_way)
    while under_way:
        work, pending = under_way.popleft()
        pending.wait()
        del pending  # with what was sent and what landed, while the work goes on
        _go_on(work, under_way)


def _go_on(work: Work[Any], under_way: deque[tuple[Work[Any], Pending]]) -> None:
    """Resume a work until it waits again; nothing is left of one that has ended."""
    pending = next(work, None)
    if pending is not None:
        under_way.append((work, pending))
