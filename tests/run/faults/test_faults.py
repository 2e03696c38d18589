"""A rank that dies, freezes, raises or hangs is named once, and the others leave within seconds."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from clock import slowness
from loops import one_of
from penstock.run.launch.launcher import launch_program
from run.faults.toy import FROZEN

pytestmark = pytest.mark.torch

RANKS = 3
LEAVING = 5.0
"""Seconds in which everybody is gone once a fault is noticed."""

Capture = pytest.CaptureFixture[str]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str
    seconds: float
    """From the fault to the end."""

    @property
    def causes(self) -> list[str]:
        return [line for line in self.err.splitlines() if "error: " in line]

    def seconds_stopped(self, rank: int) -> float:
        """How long a rank had not moved, as the one cause says: a busy machine looks later."""
        said = re.search(rf"rank {rank} has been stopped for ([\d.]+) s", self.causes[0])
        assert said, self.err
        return float(said[1])


class Toy:
    """Launches the toy pipeline with a fault in it."""

    def __init__(self, capture: Capture, note: Path) -> None:
        self.capture, self.note = capture, note

    def __call__(self, *words: object) -> Outcome:
        self.note.write_text(str(time.monotonic()))
        program = [sys.executable, "-m", "run.faults.toy", *map(str, words)]
        code = launch_program(program, RANKS)
        seconds = time.monotonic() - float(self.note.read_text())
        return Outcome(code, *self.capture.readouterr(), seconds)


@pytest.fixture
def toy(capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toy:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("FAULT", str(tmp_path / "fault"))
    return Toy(capfd, tmp_path / "fault")


def test_without_a_fault_nobody_complains(toy: Toy) -> None:
    outcome = toy(3, "nothing")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("sum ")


@pytest.mark.parametrize("rank", one_of(3, ((1,), (0,), (2,))))
def test_an_exception_is_reported_once_with_rank_op_lane_and_lines(toy: Toy, rank: int) -> None:
    outcome = toy(3, "raise", rank, 1, 2)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    op = ["0F2", "1B0", "2F1"][rank]
    assert f"rank {rank}, at {op} (op 3 of 8 of step 1): RuntimeError" in outcome.causes[0]
    assert "in broken_layer" in outcome.err
    assert "penstock/run" not in outcome.err
    assert _pointed_at(outcome.err) == op
    assert outcome.seconds < LEAVING


def _pointed_at(text: str) -> str:
    """The word above the arrow."""
    lines = text.splitlines()
    number = next(number for number, line in enumerate(lines) if "^^^" in line and "~" not in line)
    arrow = lines[number]
    return lines[number - 1][arrow.index("^") : arrow.rindex("^") + 1]


def test_our_own_errors_come_with_a_hint_and_without_a_traceback(toy: Toy) -> None:
    outcome = toy(3, "refuse", 2, 1, 0)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert "rank 2, at 2F0 (op 1 of 8 of step 1): the loss is not a number" in outcome.causes[0]
    assert "hint: lower the rate" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("rank", one_of(2, ((0,), (1,))))
def test_a_killed_rank_is_named_once_and_the_others_leave(toy: Toy, rank: int) -> None:
    outcome = toy(100, "kill", rank, 3, 5)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert f"rank {rank} was killed by SIGKILL" in outcome.causes[0]
    assert outcome.seconds < LEAVING


def test_a_rank_that_leaves_without_a_word_is_named(toy: Toy) -> None:
    outcome = toy(100, "exit", 2, 1, 0)
    assert outcome.code == 7
    assert len(outcome.causes) == 1, outcome.err
    assert "rank 2 exited with code 7" in outcome.causes[0]


@pytest.mark.parametrize("rank", one_of(2, ((2,), (0,))))
def test_a_frozen_rank_is_named_with_who_waits_for_it(toy: Toy, rank: int) -> None:
    outcome = toy(100, "freeze", rank, 1, 2)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert FROZEN <= outcome.seconds_stopped(rank) < FROZEN + slowness()
    assert "rank 1 waits for " in outcome.causes[0]
    assert outcome.seconds < FROZEN + LEAVING


@pytest.mark.parametrize("rank", one_of(2, ((1,), (0,))))
def test_a_rank_that_freezes_between_its_arrival_and_the_first_step_is_named(
    toy: Toy, rank: int
) -> None:
    outcome = toy(3, "freeze", rank, -1, 0)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert FROZEN <= outcome.seconds_stopped(rank) < FROZEN + slowness()
    # of a rank that was busy one may know no more than what it waited for before
    assert re.search("waits? for all ranks to connect to each other", outcome.causes[0])
    assert outcome.seconds < FROZEN + LEAVING


@pytest.mark.matrix
def test_a_rank_that_wakes_up_in_time_goes_on(toy: Toy) -> None:
    outcome = toy(3, "nap", 0, 1, 2)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.seconds > 2.4


def test_ranks_do_not_outlive_their_launcher(toy: Toy) -> None:
    """The launcher is a process of its own here, and is killed by one of its ranks."""
    program = [sys.executable, "-m", "run.faults.toy", "100000", "orphan", "1", "1", "2"]
    launcher = f"from penstock.run.launch.launcher import *; launch_program({program!r}, 2)"
    done = subprocess.run([sys.executable, "-c", launcher], stdout=subprocess.PIPE, check=False)
    seconds = time.monotonic() - float(toy.note.read_text())
    assert done.returncode == -signal.SIGKILL  # and all ranks have closed the pipe
    assert seconds < LEAVING


def test_a_rank_that_beats_but_does_not_move_is_named_with_its_op(toy: Toy) -> None:
    outcome = toy(100, "hang", 2, 1, 2)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert "rank 2 has been stuck for 6." in outcome.causes[0]
    assert "it runs 2F1, at 2F1 (op 3 of 8 of step 1); rank 1 waits for " in outcome.causes[0]
    assert outcome.seconds < 6.0 + LEAVING


def test_a_rank_that_does_not_come_to_what_all_do_together_is_named(toy: Toy) -> None:
    outcome = toy(100, "hang", 1, 1, 8)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert "rank 1 has been stuck for 6." in outcome.causes[0]
    said = "at step 1, while it ends its step; ranks 0, 2 wait for all ranks to end the step"
    assert said in outcome.causes[0]
    assert outcome.seconds < 6.0 + LEAVING


def test_a_disagreement_is_refused_with_both_sides_named(toy: Toy) -> None:
    outcome = toy(3, "differ", 1)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert "optimizer.learning_rate: rank 0 has 0.01, rank 1 has 0.001" in outcome.causes[0]
