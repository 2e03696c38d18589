"""No process outlives the one that started it, whenever that dies and whichever verb it was."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from count_faults import COMMANDS, CONFIG, Started, started
from loops import one_of
from penstock.parent_process import VARIABLE, hold

pytestmark = pytest.mark.torch

LEAVING = 5.0
"""Seconds in which everybody is gone."""

VERIFY = ("penstock", "verify", "gpipe", "-p", "2", "-m", "2")


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def ended(run: Started, number: int) -> None:
    """Send a signal to the launcher; nobody is left a few seconds later."""
    os.kill(run.launcher.pid, number)
    assert run.wait_for_end(LEAVING), f"left: {run.left}; said: {run.said.read_text()}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_verify_leaves_nobody_behind(tmp_path: Path, number: int) -> None:
    with started(VERIFY, tmp_path) as run:
        run.wait_for_ranks(2)
        ended(run, number)


@pytest.mark.parametrize(
    "verb", one_of(2, (("train",), ("verify",), ("bench run",), ("torchrun",)))
)
def test_ranks_that_still_import_notice_too(tmp_path: Path, verb: str) -> None:
    """The first rank is at its first line when the launcher is killed."""
    (tmp_path / "tiny.toml").write_text(CONFIG)
    with started(COMMANDS[verb], tmp_path) as run:
        run.wait_for_ranks()
        ended(run, signal.SIGKILL)


PARENT = """
import os, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from penstock.parent_process import tie

child = "from penstock.parent_process import hold; hold(); print('tied', flush=True);" + sys.argv[2]
tied = tie() if sys.argv[1] == "main" else ThreadPoolExecutor(1).submit(tie).result()
program = [sys.executable, "-c", child]
environment = {**os.environ, **tied.environment}
print(subprocess.Popen(program, env=environment, pass_fds=[tied.descriptor]).pid, flush=True)
time.sleep(600)
"""

HOLDS_ITS_INTERPRETER = "import re; re.match('(a+)+$', 'a' * 60 + 'b')"


@pytest.mark.parametrize(
    ("thread", "work"),
    [("main", HOLDS_ITS_INTERPRETER), ("side", "import time; time.sleep(600)")],
    ids=["by the kernel", "by the pipe"],
)
def test_a_child_ends_with_its_parent(thread: str, work: str) -> None:
    """By the kernel, where no thread of the child can run; by the pipe, where the kernel would
    report the end of a thread."""
    words = [sys.executable, "-c", PARENT, thread, work]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    with parent, parent.stdout as out:
        child = int(out.readline())
        assert out.readline() == "tied\n"
        time.sleep(0.5)  # it is at work
        assert _runs(child)
        parent.kill()
        assert _ends(child)


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
        assert _ends(child)


@pytest.mark.parametrize("told", ["", "word", "1:2", "-1:2:1", "7:99999999:1", "9" * 5000 + ":1:1"])
def test_a_tie_that_this_process_does_not_have_holds_nobody(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, told)
    threads = threading.active_count()
    hold()
    assert threading.active_count() == threads
    assert VARIABLE not in os.environ


def _ends(process: int) -> bool:
    deadline = time.monotonic() + LEAVING
    while _runs(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not _runs(process)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/environ").read_bytes() != b""
    except OSError:
        return False
