"""What a process sees of another on its machine."""

import os
import signal
import subprocess
import time
from contextlib import ExitStack

import pytest

from penstock.run.process.neighbour import (
    GONE,
    STOPPED,
    THERE,
    UNKNOWN,
    machine_name,
    own_name,
    state_of,
    stopped_siblings,
)


def settles(name: str, state: str) -> bool:
    deadline = time.monotonic() + 20.0
    while state_of(name) != state and time.monotonic() < deadline:
        time.sleep(0.01)
    return state_of(name) == state


@pytest.mark.processes
def test_a_neighbour_is_there_stopped_there_again_and_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        name = f"{machine_name()}/{sleeper.pid}"
        assert settles(name, THERE)
        for number, state in (
            (signal.SIGSTOP, STOPPED),
            (signal.SIGCONT, THERE),
            (signal.SIGKILL, GONE),
        ):
            sleeper.send_signal(number)
            assert settles(name, state), state
    assert state_of(name) == GONE


def test_a_process_sees_itself_and_nobody_on_another_machine() -> None:
    assert state_of(own_name()) == THERE
    assert state_of(f"elsewhere/{os.getpid()}") == UNKNOWN
    assert state_of("") == UNKNOWN


@pytest.mark.processes
def test_a_stopped_sibling_is_known_by_its_rank_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "7")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "getppid", os.getpid)  # children of this process stand for siblings
    with ExitStack() as stack:
        places = (("1", "7"), ("2", "7"), ("3", "8"))
        for rank, port in places:
            known = {**os.environ, "RANK": rank, "MASTER_PORT": port}
            sleeper = stack.enter_context(subprocess.Popen(["sleep", "60"], env=known))
            stack.callback(sleeper.kill)
            if rank != "2":
                sleeper.send_signal(signal.SIGSTOP)
                assert settles(f"{machine_name()}/{sleeper.pid}", STOPPED)
        assert stopped_siblings([1, 2, 3]) == [1]  # the second runs, the third is of another run
        assert stopped_siblings([0, 2]) == []
