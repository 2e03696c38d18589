"""The first cause: what went wrong first, said once.

When one rank fails, the others fail a moment later because it is gone. A wall of their errors
hides the one that matters. So a cause is claimed in the store by compare-and-set: the first rank to
do so prints it, and the others leave in silence.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from torch._C._distributed_c10d import Store
from torch.distributed import DistError

from penstock.run.process.store import peek
from penstock.terminal import say_error

KEY = "cause"
LAUNCHER = -1
"""Who claims a cause in the name of a rank that could not."""

_LOST = (
    "connection closed",
    "connection reset",
    "connection refused",
    "connection was",
    "broken pipe",
    "pair closure",
    "socket closed",
    "socket timeout",
    "timed out waiting",
    "remote process exited",
    "nccl communicator was aborted",
    "peer closed",
)
"""How torch and its back ends say that the other end is gone."""

STORE_POLL = 0.05
"""Seconds between two looks at the store."""


class Cause(NamedTuple):
    """What went wrong, and the rank that said so."""

    by: int
    text: str


def claim(store: Store, by: int, text: str) -> bool:
    """Make this the first cause; False where there already is one."""
    mine = json.dumps(Cause(by, text))
    return store.compare_set(KEY, "", mine).decode() == mine


def first(store: Store) -> Cause | None:
    """The cause that was claimed, if any."""
    value = peek(store, KEY)
    return Cause(*json.loads(value)) if value else None


def expect(store: Store, seconds: float) -> Cause | None:
    """The cause, waiting for it for a short time."""
    deadline = time.monotonic() + seconds
    while (found := first(store)) is None and time.monotonic() < deadline:
        time.sleep(STORE_POLL)
    return found


def is_consequence(error: BaseException) -> bool:
    """Whether an error only says that another rank is gone."""
    return any(_says_lost(link) for link in _links(error))


def _links(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _says_lost(error: BaseException) -> bool:
    if isinstance(error, DistError | ConnectionError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _LOST)


def say(text: str) -> None:
    """Print a cause where people look for errors."""
    say_error(f"error: {text}")


def end_process(code: int) -> NoReturn:
    """End the process now: the main thread may hang where no exception reaches it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
