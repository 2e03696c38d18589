"""Ranks that are killed and started again end with the weights of a run that was left alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from train.runs.kills import RANKS, Disturbed, disturbed, kills
from train.runs.ranks import LIMIT, Setting

pytestmark = pytest.mark.torch


def killed(folder: Path, times: int) -> Disturbed:
    """A run in which each rank is killed so many times, which has not changed the weights."""
    plan = kills(RANKS * times, seed=1)
    assert sorted(kill.rank for kill in plan) == sorted([*range(RANKS)] * times)
    found = disturbed(Setting(folder), plan)
    assert found.killed == RANKS * times
    assert found.begun == sorted(found.begun)
    assert len(found.without) > 30
    assert found.different == []
    return found


@pytest.mark.matrix
def test_each_rank_is_killed_and_the_weights_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    assert killed(tmp_path, times=1).begun


@pytest.mark.matrix
def test_each_rank_is_killed_three_times_and_the_weights_are_the_same_bit_for_bit(
    tmp_path: Path,
) -> None:
    found = killed(tmp_path, times=3)
    assert len({*found.begun}) > 2  # and some of what was done before them was kept


def rank_process(agent: int, rank: int) -> int:
    """The process that torchrun has started as a rank."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    wanted = f"RANK={rank}".encode()
    found = [
        int(child)
        for child in children
        if wanted in Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
    ]
    assert len(found) == 1, children
    return found[0]


@pytest.mark.matrix
def test_a_rank_killed_from_outside_under_torchrun_costs_nothing(
    setting: Setting, tmp_path: Path
) -> None:
    """The command that the manual gives, and somebody who runs out of memory."""
    changes = ("run.steps=24", "checkpoint.every=2")
    straight = setting.run(*changes, name="straight-twenty-four")
    words = Setting(tmp_path).words(*changes)
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    agent = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, "-m", "penstock", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + LIMIT
        while not list((tmp_path / "run" / "checkpoints").glob("step-*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(rank_process(agent.pid, 1), signal.SIGKILL)
        said = agent.communicate(timeout=LIMIT)[1]
    finally:
        agent.kill()
        agent.communicate()
    assert agent.returncode == 0, said
    assert "continues from step " in said
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == straight.records
