"""No process outlives the one that started it, whenever that dies and whichever verb it was."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from count_faults import CONFIG, Started, started

pytestmark = pytest.mark.torch

LEAVING = 5.0
"""Seconds in which everybody is gone."""

VERBS = {
    "verify": ["verify", "gpipe", "-p", "2", "-m", "2"],
    "train": ["train", "tiny.toml"],
}


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def ended(run: Started, number: int) -> None:
    """Send a signal to the launcher; nobody is left a few seconds later."""
    os.kill(run.launcher.pid, number)
    assert run.wait_for_end(LEAVING), f"left: {run.left}; said: {run.said.read_text()}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_verify_leaves_nobody_behind(tmp_path: Path, number: int) -> None:
    with started(VERBS["verify"], tmp_path) as run:
        run.wait_for_ranks(2)
        ended(run, number)


@pytest.mark.parametrize("verb", ["verify", "train"])
def test_ranks_that_still_import_notice_too(tmp_path: Path, verb: str) -> None:
    """The first rank is at its first line when the launcher is killed."""
    (tmp_path / "tiny.toml").write_text(CONFIG)
    with started(VERBS[verb], tmp_path) as run:
        run.wait_for_ranks()
        ended(run, signal.SIGKILL)


def test_a_rank_that_is_stopped_ends_with_its_launcher(tmp_path: Path) -> None:
    with started(VERBS["verify"], tmp_path) as run:
        run.wait_for_ranks(2)
        for process in run.ranks().values():
            _wait_for_kernel(process)
            os.kill(process, signal.SIGSTOP)
        ended(run, signal.SIGKILL)


def _wait_for_kernel(process: int) -> None:
    """Until a rank has started its thread, which it does after it has asked the kernel."""
    deadline = time.monotonic() + 60.0
    while len(os.listdir(f"/proc/{process}/task")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)


SEARCH = """
import os, time
from penstock.search.best.time_limit import Attempt
attempt = Attempt(lambda: time.sleep(600))
print(attempt._process.pid, flush=True)
time.sleep(600)
"""


def test_a_search_beside_us_ends_with_us() -> None:
    searching = subprocess.Popen([sys.executable, "-c", SEARCH], stdout=subprocess.PIPE, text=True)
    assert searching.stdout
    with searching, searching.stdout as out:
        child = int(out.readline())
        searching.kill()
        deadline = time.monotonic() + LEAVING
        while _runs(child) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert not _runs(child)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/environ").read_bytes() != b""
    except OSError:
        return False
