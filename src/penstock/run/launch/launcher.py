"""Starts the ranks of a run on this machine and answers for them.

The launcher hosts the store at which they meet, so that no rank, frozen or dead, takes it away from
the others. When a rank fails, the others are ended within seconds and the first cause is on the
console once: said by the rank itself where it could, otherwise by the launcher, which alone knows
that a process was killed.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch._C._distributed_c10d import Store

from penstock.errors import ShapeError
from penstock.run.launch.output import Console
from penstock.run.launch.processes import RankExit, RankProcesses
from penstock.run.launch.signals import Passing
from penstock.run.launch.start import LocalRanks
from penstock.run.launch.stopped import FROZEN, RankStop, Stops
from penstock.run.process.exit_codes import FAILED, GOOD, SAVED
from penstock.run.watchdog import first_cause
from penstock.run.watchdog.alarm import who_waits
from penstock.run.watchdog.heartbeat import hear

RUNNING_POLL = 0.05
"""Seconds between two looks at the processes."""
OWN_WAY = 1.0
"""Seconds in which ranks notice a failure themselves before they are told to stop."""
NOTICE = 1.0
"""Seconds between being told to stop and being ended."""


class Limits(NamedTuple):
    """Seconds after which a rank is given up by its launcher."""

    patience: float = 60.0
    """Still there and without a beat, once another rank has done its part."""
    frozen: float = FROZEN
    """Stopped by a signal."""


USUAL_LIMITS = Limits()


def launch(
    command: Sequence[str],
    ranks: int,
    *,
    limits: Limits = USUAL_LIMITS,
    logs: Path | None = None,
) -> int:
    """Run `penstock COMMAND` as that many ranks and return the exit code of the whole.

    Files `rank-N.log` in the folder `logs` keep what each rank prints.
    """
    program = [sys.executable, "-m", "penstock", *command]
    return launch_program(program, ranks, limits=limits, logs=logs)


def launch_program(
    program: Sequence[str],
    ranks: int,
    *,
    limits: Limits = USUAL_LIMITS,
    logs: Path | None = None,
) -> int:
    """Run any program as the ranks of a run."""
    if ranks < 1:
        raise ShapeError(f"{ranks} ranks cannot run anything", hint="take at least 1")
    places = LocalRanks(ranks)
    store = places.store
    with Console(logs) as console, RankProcesses() as members, Passing(members, store) as passing:
        for rank in range(ranks):
            members.add(places.start(rank, program, console.sinks(rank)))
            console.attach(rank, members.processes[rank])
        passing.repeat()
        return _wait(members, store, limits, passing)


def _wait(members: RankProcesses, store: Store, limits: Limits, passing: Passing) -> int:
    """The exit code of the run, once all ranks have ended."""
    bad = _first_bad(members, store, limits, passing)
    if passing.interrupted or (bad and bad.code == -passing.last):
        first_cause.claim(store, first_cause.LAUNCHER, "told to stop")  # what follows is silent
        members.end(OWN_WAY, NOTICE)
        return passing.code
    if bad is None and not members.running:
        return SAVED if any(end.code == SAVED for end in members.ended) else GOOD
    _blame(members, bad, store, limits)
    members.end(OWN_WAY, NOTICE)
    return bad.code if bad and bad.code > 0 else FAILED


def _first_bad(
    members: RankProcesses, store: Store, limits: Limits, passing: Passing
) -> RankExit | RankStop | None:
    """The rank that failed first; None when all have ended, or some do not and should have: the
    others are done, and they give no sign of life."""
    since, stops = time.monotonic(), Stops(limits.frozen)
    heard: dict[int, int] = {}
    while members.running and not passing.interrupted:
        news = members.look()
        if bad := [end for end in news if not end.well]:
            return min(
                bad, key=lambda end: end.code >= 0
            )  # a killed rank fails others, not they it
        if stop := stops.look(members.processes):
            return stop
        beats = hear(store, list(members.running)) if members.ended else {}
        numbers = {rank: beat.number for rank, beat in beats.items()}
        if news or not members.ended or numbers != heard:
            since, heard = time.monotonic(), numbers
        elif time.monotonic() - since > limits.patience:
            return None
        time.sleep(RUNNING_POLL)
    return None


def _blame(
    members: RankProcesses, bad: RankExit | RankStop | None, store: Store, limits: Limits
) -> None:
    """Say the cause in the name of a rank that could not."""
    beats = hear(store, list(range(len(members.processes))))
    if bad:
        at = f", last seen {beats[bad.rank].place}" if bad.rank in beats else ""
        text = f"{bad}{at}{who_waits(bad.rank, beats)}"
    else:
        late = ", ".join(f"rank {rank}" for rank in members.running)
        text = f"{late} still running {limits.patience:g} s after {members.ended[-1]}"
    if first_cause.claim(store, first_cause.LAUNCHER, text):
        first_cause.say(text + (f"\nhint: {bad.hint}" if bad and bad.hint else ""))
