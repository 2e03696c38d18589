"""Mistakes with copies to the host, for the verifier to notice.

Copies take their time here, so that whoever does not wait for one is ahead of it, and memory whose
content nobody may count on holds no numbers.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import sleep
from typing import Any
from unittest import mock

from torch import Tensor

from penstock.core.ops import Op
from penstock.core.program import Program
from penstock.run.comm.gloo import Gloo
from penstock.run.execute import executor
from penstock.run.execute.memory_reads import MemoryReads
from penstock.run.host.moved import MovedActivation
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Call, Lane, Post
from penstock.run.program.compile import compile_lane
from penstock.verify.trial import TrialPart, run_trial
from penstock.verify.variants import Trial

SLOW, VERY_SLOW = 0.02, 2.0
"""Seconds that a copy takes at least."""
NO_NUMBER = 255
"""What every byte of memory is that nobody may count on: in all types that is no number."""

_copy_out, _copy_in = MovedActivation.copy_out, MovedActivation.copy_in
_let_go, _take_room = MovedActivation.let_go, MovedActivation.take_room
_send = Gloo.send


def _slow_out(moved: MovedActivation) -> None:
    sleep(SLOW)
    _copy_out(moved)


def _slow_in(moved: MovedActivation) -> None:
    sleep(SLOW)
    for storage in moved._coming.values():  # whoever was given it has copied it by now
        storage.fill_(NO_NUMBER)
    sleep(SLOW)
    _copy_in(moved)


def _emptied(moved: MovedActivation) -> None:
    """Nobody reads what is given back, so it may hold anything; what stays of it is kept here for a
    copy that comes too late."""
    for storage in moved._leaving.values():
        storage.fill_(NO_NUMBER)
    kept = moved._leaving
    _let_go(moved)
    moved._leaving = kept


@contextmanager
def _changed(**others: Any) -> Iterator[None]:
    changes = {"copy_out": _slow_out, "copy_in": _slow_in, "let_go": _emptied} | others
    with ExitStack() as stack:
        for name, change in changes.items():
            stack.enter_context(mock.patch.object(MovedActivation, name, change))
        yield


def slow_copies(connection: Connection, trial: Trial) -> TrialPart:
    """No mistake: copies are slow, and memory that is not in use holds no numbers."""
    with _changed():
        return run_trial(connection, trial)


def lost_load(connection: Connection, trial: Trial) -> TrialPart:
    """One activation of a process is never filled; all others are."""
    lost: list[MovedActivation] = []

    def filled(moved: MovedActivation) -> None:
        if not lost:
            lost.append(moved)
            for storage in moved._coming.values():
                storage.zero_()
        else:
            _copy_in(moved)

    with _changed(copy_in=filled):
        return run_trial(connection, trial)


def _without_event(lane: Lane, kind: str, awaited: str) -> Lane:
    """The lane in which the first call of a kind that waits for one of another kind does not."""
    ops = [call.op for call in lane.calls]
    calls = list(lane.calls)
    at = next((n for n, call in enumerate(calls) if _waits(call, kind, awaited, ops)), None)
    if at is not None:
        left = tuple(n for n in calls[at].awaits if n < 0 or ops[n].kind != awaited)
        calls[at] = calls[at]._replace(awaits=left)
    return Lane(lane.device, tuple(calls), lane.first, lane.places, lane.homes, lane.braids)


def _waits(call: Call, kind: str, awaited: str, ops: list[Op]) -> bool:
    return call.op.kind == kind and any(n >= 0 and ops[n].kind == awaited for n in call.awaits)


def load_not_awaited(connection: Connection, trial: Trial) -> TrialPart:
    """A backward does not wait for the load of its activation, which is slower than a busy machine
    needs to get there."""
    slow = iter([VERY_SLOW])

    def compiled(program: Program, device: int) -> Lane:
        return _without_event(compile_lane(program, device), "B", "L")

    def poisoned(moved: MovedActivation) -> Any:
        back = _take_room(moved)
        for storage in moved._coming.values():
            storage.fill_(NO_NUMBER)
        return back

    def late(moved: MovedActivation) -> None:
        sleep(next(slow, 0.0))
        _copy_in(moved)

    changed = _changed(copy_in=late, take_room=poisoned)
    with changed, mock.patch.object(executor, "compile_lane", compiled):
        return run_trial(connection, trial)


def freed_too_early(connection: Connection, trial: Trial) -> TrialPart:
    """Memory is given back as soon as its copy is submitted."""

    def added(reads: MemoryReads, number: int, stream: str, let_go: Any) -> None:
        if let_go is not None:
            let_go()

    with _changed(), mock.patch.object(MemoryReads, "add", added):
        return run_trial(connection, trial)


def lost_turn(connection: Connection, trial: Trial) -> TrialPart:
    """A device never tells the other one that a copy has ended."""

    def lossy(transport: Gloo, post: Post, tensor: Tensor) -> None:
        if post.buf.name != "host":
            _send(transport, post, tensor)

    with mock.patch.object(Gloo, "send", lossy):
        return run_trial(connection, trial)
