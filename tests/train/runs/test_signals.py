"""Signals: one that asks to stop saves and loses nothing, one that means now ends everything."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch.distributed

from penstock.run.process.environment import read_place
from train.runs.ranks import LIMIT, Ran, Setting, fresh

pytestmark = pytest.mark.torch

LONG = ("run.steps=30", "checkpoint.every=100")
Started = subprocess.Popen[str]


@pytest.fixture(scope="module")
def straight(setting: Setting) -> Ran:
    ran = setting.run(*LONG, name=fresh("straight-thirty"))
    assert ran.codes == (0, 0), ran.said
    return ran


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def launched(setting: Setting, name: str) -> Iterator[Started]:
    """`penstock train` as a shell would start it, its launcher and all; also where these tests run
    in the background of a shell, which has them ignore interrupts."""
    command = [sys.executable, "-m", "penstock", *setting.words(*LONG, name=name)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_steps(setting: Setting, name: str, steps: int) -> None:
    records = setting.folder / name / "metrics.jsonl"
    deadline = time.monotonic() + LIMIT
    while not records.exists() or records.read_bytes().count(b"\n") < steps:
        assert time.monotonic() < deadline, "the run does not come on"
        time.sleep(0.02)


def stop(process: Started, number: int) -> tuple[int, str, float]:
    """Send a signal: exit code, what was said, and the seconds that it took."""
    began = time.monotonic()
    process.send_signal(number)
    _, said = process.communicate(timeout=LIMIT)
    return process.returncode, said, time.monotonic() - began


@pytest.mark.matrix
def test_a_run_that_is_interrupted_and_stopped_ends_as_if_it_had_not_been(
    setting: Setting, straight: Ran
) -> None:
    """Interrupted from the keyboard at first; stopped by SIGTERM; then left alone."""
    with launched(setting, "stopped") as process:
        wait_for_steps(setting, "stopped", 2)
        code, said, seconds = stop(process, signal.SIGINT)
    assert (code, "error" in said, "Traceback" in said) == (130, False, False), said
    assert seconds < 5
    with launched(setting, "stopped") as process:
        wait_for_steps(setting, "stopped", 4)
        code, said, _ = stop(process, signal.SIGTERM)
    assert code == 75, said
    assert "stopped after step " in said
    assert "error" not in said
    done = setting.run(*LONG, name="stopped")
    assert done.codes == (0, 0), done.said
    assert "continues from step " in done.said[0]
    assert done.records == straight.records


def hang_at_the_meeting(folder: Path) -> None:
    """Rank 1 says that it has arrived, and does not connect to the others."""
    if read_place().rank == 1:

        def hang(*_: object, **__: object) -> None:
            (folder / "arrived").touch()
            time.sleep(LIMIT)

        torch.distributed.init_process_group = hang


def test_a_signal_before_the_first_step_ends_a_run_that_hangs_there(
    setting: Setting, tmp_path: Path
) -> None:
    hang = partial(hang_at_the_meeting, tmp_path)
    members = setting.start(*LONG, name="early-signal", prepare=hang)
    deadline = time.monotonic() + LIMIT
    while not (tmp_path / "arrived").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for process in members.processes:
        process.terminate()
        process.join(5.0)
    assert members.ran().codes == (-signal.SIGTERM, -signal.SIGTERM)


def test_a_signal_to_one_rank_stops_all_of_them(setting: Setting, straight: Ran) -> None:
    members = setting.start(*LONG, name="one-signal")
    wait_for_steps(setting, "one-signal", 2)
    os.kill(members.processes[1].pid or 0, signal.SIGUSR1)
    stopped = members.ran()
    assert stopped.codes == (75, 75), stopped.said
    assert "the same command continues from there" in stopped.said[0]
    assert len(stopped.metrics) < 30
    done = setting.run(*LONG, name="one-signal")
    assert done.codes == (0, 0), done.said
    assert done.records == straight.records
