"""What a process sees of another on its machine."""

import os
import signal
import subprocess
import time

import pytest

from penstock.run.process.neighbour import (
    GONE,
    STOPPED,
    THERE,
    UNKNOWN,
    machine_name,
    own_name,
    state_of,
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
