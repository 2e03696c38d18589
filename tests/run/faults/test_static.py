"""Ranks without a launcher: rank 0 hosts the store, and takes it away when it freezes."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from loops import one_of
from penstock.run.process.environment import RankPlace

pytestmark = pytest.mark.torch

Started = subprocess.Popen[str]

LIMIT = 240.0
"""Seconds in which a few steps are over, on a machine that is busy with others."""


def start(rank: int, port: int, *words: object) -> Started:
    place = RankPlace(rank, 2, rank, 2, port=port)
    path = {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        [sys.executable, "-m", "run.faults.toy", *map(str, words)],
        env={**os.environ, **path, **place.environment()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def left_alone(rank: int, fault: str, step: int = 1) -> tuple[int, str]:
    """Exit code and errors of the rank that is left when the other is at fault."""
    port = free_port()
    both = [start(each, port, 100, fault, rank, step, 2) for each in range(2)]
    try:
        errors = both[1 - rank].communicate(timeout=LIMIT)[1]
        return both[1 - rank].returncode, errors
    finally:
        both[rank].send_signal(signal.SIGKILL)
        both[rank].communicate()


def test_the_rank_that_hosts_the_store_leaves_last() -> None:
    port = free_port()
    both = [start(rank, port, 3, "nothing") for rank in range(2)]
    said = [each.communicate(timeout=LIMIT)[1] for each in both]
    assert ([each.returncode for each in both], said) == ([0, 0], ["", ""])


def test_a_frozen_rank_is_named_by_the_one_that_is_left() -> None:
    code, errors = left_alone(1, "freeze")
    assert code == 1
    assert re.search(r"error: rank 1 has been stopped for [34]\.\d s", errors)
    assert "rank 0 waits for " in errors


@pytest.mark.parametrize("step", one_of(2, ((0,), (20,))))
def test_a_store_that_does_not_answer_is_an_alarm_of_its_own(step: int) -> None:
    code, errors = left_alone(0, "freeze", step)
    assert code == 1
    assert "error: the store at 127.0.0.1:" in errors
    assert re.search(r"not answered for [34]\.\d s: rank 0 hosts it and is stopped", errors)


@pytest.mark.parametrize(("fault", "state"), one_of(2, (("freeze", "stopped"), ("kill", "gone"))))
def test_a_rank_lost_between_its_arrival_and_the_first_step_is_named(
    fault: str, state: str
) -> None:
    code, errors = left_alone(1, fault, step=-1)
    assert code == 1
    assert f"error: rank 1 has been {state} for 3." in errors
    assert "rank 0 waits for all ranks to connect to each other" in errors


def test_a_rank_that_is_stopped_while_it_imports_is_named() -> None:
    port = free_port()
    late, waiting = (start(rank, port, 100, "nothing") for rank in (1, 0))
    late.send_signal(signal.SIGSTOP)
    try:
        errors = waiting.communicate(timeout=LIMIT)[1]
        assert waiting.returncode == 1
        assert re.search(r"error: rank 1 has been stopped for [34]\.\d s, before its first", errors)
        assert "rank 0 waits for all ranks to start" in errors
    finally:
        late.kill()
        late.communicate()
