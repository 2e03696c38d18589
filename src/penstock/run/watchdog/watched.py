"""A rank's connection with a watch over it, from the first thing that it can say to the last.

Whoever waits for the others at the start waits without a limit: a rank that freezes between its
arrival and the first step would hold all of them. So the watch begins as soon as the store is
reached, before anybody is waited for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.run.process.environment import RankPlace
from penstock.run.process.rendezvous import connect, groups_taken_down, set_up_groups
from penstock.run.process.store import assemble
from penstock.run.watchdog.alarm import Patience
from penstock.run.watchdog.error_report import report_errors
from penstock.run.watchdog.position import Tracker
from penstock.run.watchdog.watchdog import BEAT, USUAL_PATIENCE, Watch

Admit = Callable[[RankPlace], None]
"""Refuses a rank by an error; asked before anybody is waited for, where the others hear of it."""


@contextmanager
def watched_connection(
    backend: str,
    tracker: Tracker,
    patience: Patience = USUAL_PATIENCE,
    *,
    beat: float = BEAT,
    admit: Admit | None = None,
) -> Iterator[Watch]:
    """The watch of a rank that has met the others; an error in the block ends the process."""
    with groups_taken_down():
        connection = connect()
        with Watch(connection, tracker, patience, beat=beat) as watch, report_errors(watch):
            if admit is not None:
                admit(connection.place)
            with tracker.gathers("start"):
                assemble(connection.store, connection.place)
            watch.hear_once()
            with tracker.gathers("connect to each other"):
                set_up_groups(connection, backend)
            yield watch
