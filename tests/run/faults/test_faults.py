"""A rank that dies, freezes, raises or hangs is named once, and the others leave within seconds."""

import os
import sys
import time
from typing import NamedTuple

import pytest

from penstock.run.launch import launch_program

pytestmark = pytest.mark.torch

RANKS = 3
PATIENCE = 5.0
START = 30.0
"""Seconds for three processes to import torch on a busy machine."""
LEAVING = 5.0


class Outcome(NamedTuple):
    code: int
    out: str
    err: str
    seconds: float

    @property
    def causes(self) -> list[str]:
        return [line for line in self.err.splitlines() if "error: " in line]


Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("PATIENCE", str(PATIENCE))


def run(capture: Capture, *words: object, ranks: int = RANKS) -> Outcome:
    begin = time.monotonic()
    program = [sys.executable, "-m", "run.faults.toy", *map(str, words)]
    code = launch_program(program, ranks, patience=PATIENCE)
    seconds = time.monotonic() - begin
    return Outcome(code, *capture.readouterr(), seconds)


def test_without_a_fault_every_launch_gives_the_same(capfd: Capture) -> None:
    first, second = (run(capfd, 3, "nothing") for _ in range(2))
    assert (first.code, first.causes) == (0, [])
    assert first.out.startswith("sum ")
    assert first.out == second.out


@pytest.mark.parametrize("rank", range(RANKS))
def test_an_exception_is_reported_once_with_rank_op_lane_and_lines(
    capfd: Capture, rank: int
) -> None:
    outcome = run(capfd, 3, "raise", rank, 1, 2)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    op = ["0F2", "1B0", "2F1"][rank]
    assert f"rank {rank}, at {op} (op 3 of 8 of step 1): RuntimeError" in outcome.causes[0]
    assert "in broken_layer" in outcome.err
    assert "penstock/run" not in outcome.err
    assert _pointed_at(outcome.err) == op
    assert outcome.seconds < START + LEAVING


def _pointed_at(text: str) -> str:
    """The word above the arrow."""
    lines = text.splitlines()
    number = next(number for number, line in enumerate(lines) if "^^^" in line and "~" not in line)
    arrow = lines[number]
    return lines[number - 1][arrow.index("^") : arrow.rindex("^") + 1]


def test_our_own_errors_come_with_a_hint_and_without_a_traceback(capfd: Capture) -> None:
    outcome = run(capfd, 3, "refuse", 2, 1, 0)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert "rank 2, at 2F0 (op 1 of 8 of step 1): the loss is not a number" in outcome.causes[0]
    assert "hint: lower the rate" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_named_once_and_the_others_leave(capfd: Capture, rank: int) -> None:
    outcome = run(capfd, 100, "kill", rank, 3, 5)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert f"rank {rank} was killed by SIGKILL" in outcome.causes[0]
    assert outcome.seconds < START + LEAVING


def test_a_rank_that_leaves_without_a_word_is_named(capfd: Capture) -> None:
    outcome = run(capfd, 100, "exit", 2, 1, 0)
    assert outcome.code == 7
    assert len(outcome.causes) == 1, outcome.err
    assert "rank 2 left with exit code 7" in outcome.causes[0]


@pytest.mark.parametrize("rank", [0, 2])
def test_a_frozen_rank_is_named_with_who_waits_for_it(capfd: Capture, rank: int) -> None:
    outcome = run(capfd, 100, "freeze", rank, 1, 2)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert f"rank {rank} is silent since 5." in outcome.causes[0]
    assert "rank 1 waits for " in outcome.causes[0]
    assert outcome.seconds < START + PATIENCE + LEAVING


def test_a_rank_that_beats_but_does_not_move_is_named_with_its_op(capfd: Capture) -> None:
    outcome = run(capfd, 100, "hang", 2, 1, 2)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert "rank 2 is stuck since 6." in outcome.causes[0]
    assert "it runs 2F1, at 2F1 (op 3 of 8 of step 1); rank 1 waits for " in outcome.causes[0]
    assert outcome.seconds < START + 6.0 + LEAVING


def test_a_disagreement_is_refused_with_both_sides_named(capfd: Capture) -> None:
    outcome = run(capfd, 3, "differ", 1)
    assert outcome.code == 1
    assert len(outcome.causes) == 1, outcome.err
    assert "optimizer.rate: rank 0 has 0.01, rank 1 has 0.001" in outcome.causes[0]
