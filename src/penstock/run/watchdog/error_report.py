"""Turns an error of a rank into one report on the console: who, where, what, and the user's lines.

The report names rank, step and op, shows the lane with an arrow, and then the traceback from the
first frame that is not our own machinery. A rank that only notices that another one is gone waits a
moment for the cause; if none comes, it says which rank has gone silent.
"""

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from torch.distributed import DistError

from penstock.errors import PenstockError
from penstock.run.process.exit_codes import FAILED, INTERRUPTED
from penstock.run.watchdog import first_cause
from penstock.run.watchdog.position import Tracker, at
from penstock.run.watchdog.watchdog import LINGER, Watch

PROMPT = 1.0
"""Seconds in which the rank to blame, or its launcher, has claimed the cause."""
MISSED = 3
"""Beats in a row that a rank has to miss to be taken for gone when its connections are."""

_MACHINERY = tuple(
    str(Path(__file__).parents[2] / layer) for layer in ("cli", "run", "train", "__main__.py")
)
"""Where frames are of no interest to whoever reads about an error in model or data."""


@contextmanager
def report_errors(watch: Watch) -> Iterator[None]:
    """End the process on an error, with the first cause said once.

    A process that nobody has launched just raises; a single one with a launcher tells it.
    """
    try:
        yield
    except KeyboardInterrupt:
        if watch.connection.place.port == 0:
            raise
        first_cause.end_process(INTERRUPTED)
    except Exception as error:
        if watch.connection.place.port == 0:
            raise
        _report(watch, error)
        _leave(watch, error)


def _leave(watch: Watch, error: Exception) -> None:
    if watch.connection.place.hosts:
        time.sleep(LINGER)  # the store lives here, and the others have to read the cause
    first_cause.end_process(error.exit_code if isinstance(error, PenstockError) else FAILED)


def _report(watch: Watch, error: Exception) -> None:
    rank, store = watch.connection.rank, watch.connection.store
    try:
        text = _consequence(watch, error) if first_cause.is_consequence(error) else ""
        if first_cause.first(store) is None:
            text = text or describe(error, rank, watch.tracker)
            if first_cause.claim(store, rank, text):
                first_cause.say(text)
    except DistError:
        first_cause.say(describe(error, rank, watch.tracker))  # without a store everybody speaks


def _consequence(watch: Watch, error: Exception) -> str:
    """Which rank is gone, once it is known and nobody has said so."""
    deadline = time.monotonic() + PROMPT + 2 * MISSED * watch.beat
    found = first_cause.expect(watch.connection.store, PROMPT)
    while not found and time.monotonic() < deadline:
        for rank, silence in watch.ear.silence.items():
            if silence >= MISSED * watch.beat and rank in watch.ear.beats:
                return (
                    f"rank {rank} is gone, last seen {watch.ear.beats[rank].place}; "
                    f"rank {watch.connection.rank} noticed: {_summary(error)}"
                )
        found = first_cause.expect(watch.connection.store, first_cause.STORE_POLL)
    return ""


def describe(error: Exception, rank: int, tracker: Tracker) -> str:
    """The whole report of an error."""
    head = f"rank {rank}, {at(tracker.position().where)}: "
    picture = tracker.picture()
    parts = [head + _summary(error), *([picture] if picture else [])]
    if isinstance(error, PenstockError):
        parts += [f"hint: {error.hint}"] if error.hint else []
    else:
        parts.append(_trace(error))
    return "\n\n".join(parts)


def _summary(error: Exception) -> str:
    if isinstance(error, PenstockError):
        return error.message
    text = str(error).strip()
    line = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _trace(error: Exception) -> str:
    """The traceback from the first frame outside of the machinery, or all of it."""
    own = _outside(error.__traceback__) or error.__traceback__
    return "".join(traceback.format_exception(type(error), error, own)).rstrip()


def _outside(trace: TracebackType | None) -> TracebackType | None:
    while trace and trace.tb_frame.f_code.co_filename.startswith(_MACHINERY):
        trace = trace.tb_next
    return trace
