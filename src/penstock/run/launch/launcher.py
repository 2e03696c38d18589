"""Starts the ranks of a run on this machine and answers for them.

The launcher hosts the store at which they meet, so that no rank, frozen or dead, takes it away from
the others. When a rank fails, the others are ended within seconds and the first cause is on the
console once: said by the rank itself where it could, otherwise by the launcher, which alone knows
that a process was killed.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from torch._C._distributed_c10d import Store

from penstock.errors import ShapeError
from penstock.run.launch.output import Console
from penstock.run.launch.processes import RankExit, RankProcesses
from penstock.run.launch.signals import Passing
from penstock.run.process.environment import RankPlace, child_environment
from penstock.run.process.exit_codes import FAILED, GOOD, SAVED
from penstock.run.process.store import host, of_attempt, own_part
from penstock.run.watchdog import first_cause
from penstock.run.watchdog.alarm import who_waits
from penstock.run.watchdog.heartbeat import hear

RUNNING_POLL = 0.05
"""Seconds between two looks at the processes."""
OWN_WAY = 1.0
"""Seconds in which ranks notice a failure themselves before they are told to stop."""
NOTICE = 1.0
"""Seconds between being told to stop and being ended."""


def launch(
    command: Sequence[str], ranks: int, *, patience: float = 60.0, logs: Path | None = None
) -> int:
    """Run `penstock COMMAND` as that many ranks and return the exit code of the whole.

    Once a rank has done its part, the others have `patience` seconds to do theirs. Files
    `rank-N.log` in the folder `logs` keep what each rank prints.
    """
    program = [sys.executable, "-m", "penstock", *command]
    return launch_program(program, ranks, patience=patience, logs=logs)


def launch_program(
    program: Sequence[str], ranks: int, *, patience: float = 60.0, logs: Path | None = None
) -> int:
    """Run any program as the ranks of a run."""
    if ranks < 1:
        raise ShapeError(f"{ranks} ranks cannot run anything", hint="take at least 1")
    server = host()
    store = own_part(of_attempt(server, 0))
    with Console(logs) as console, RankProcesses() as members, Passing(members, store) as passing:
        for rank in range(ranks):
            place = RankPlace(rank, ranks, rank, ranks, port=server.port, hosted=True)
            members.add(_start(program, place, console))
        return _wait(members, store, patience, passing)


def _start(program: Sequence[str], place: RankPlace, console: Console) -> "subprocess.Popen[bytes]":
    out, err = console.sinks(place.rank)
    process = subprocess.Popen(
        list(program),
        env=child_environment(place),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        process_group=0,  # signals of the terminal reach the ranks through the launcher, once
    )
    console.attach(place.rank, process)
    return process


def _wait(members: RankProcesses, store: Store, patience: float, passing: Passing) -> int:
    """The exit code of the run, once all ranks have ended."""
    bad = _first_bad(members, store, patience, passing)
    if passing.interrupted or (bad and bad.code == -passing.last):
        members.end(OWN_WAY, NOTICE)
        return passing.code
    if bad is None and not members.running:
        return SAVED if any(end.code == SAVED for end in members.ended) else GOOD
    _blame(members, bad, store, patience)
    members.end(OWN_WAY, NOTICE)
    return bad.code if bad and bad.code > 0 else FAILED


def _first_bad(
    members: RankProcesses, store: Store, patience: float, passing: Passing
) -> RankExit | None:
    """The rank that failed first; None when all have ended, or some do not and should have: the
    others are done, and they give no sign of life."""
    since = time.monotonic()
    heard: dict[int, int] = {}
    while members.running and not passing.interrupted:
        news = members.look()
        if bad := [end for end in news if not end.well]:
            return min(
                bad, key=lambda end: end.code >= 0
            )  # a killed rank fails others, not they it
        beats = hear(store, list(members.running)) if members.ended else {}
        numbers = {rank: beat.number for rank, beat in beats.items()}
        if news or not members.ended or numbers != heard:
            since, heard = time.monotonic(), numbers
        elif time.monotonic() - since > patience:
            return None
        time.sleep(RUNNING_POLL)
    return None


def _blame(members: RankProcesses, bad: RankExit | None, store: Store, patience: float) -> None:
    """Say the cause in the name of a rank that could not."""
    beats = hear(store, list(range(len(members.processes))))
    if bad:
        at = f", last heard {beats[bad.rank].place}" if bad.rank in beats else ""
        text = f"{bad}{at}{who_waits(bad.rank, beats)}"
    else:
        late = ", ".join(f"rank {rank}" for rank in members.running)
        text = f"{late} still running {patience:g} s after {members.ended[-1]}"
    if first_cause.claim(store, first_cause.LAUNCHER, text):
        first_cause.say(text + (f"\nhint: {bad.hint}" if bad and bad.hint else ""))
