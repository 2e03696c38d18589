"""The launcher: environment, exit codes, signals, output, and ports that never clash."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import RunError, ShapeError
from penstock.run.launch.launcher import Limits, launch, launch_program
from penstock.run.launch.start import LocalRanks, RankProcess
from penstock.run.process.environment import read_place

pytestmark = pytest.mark.torch

Capture = pytest.CaptureFixture[str]

SETTLED = 20.0
"""Seconds in which a launch of small programs is over on a busy machine."""


def script(text: str, ranks: int = 3, *, patience: float = 60.0, logs: Path | None = None) -> int:
    """Launch a few lines of Python that know their rank; they do not wait for torch."""
    head = "import os, sys, time, signal; rank = int(os.environ['RANK'])\n"
    program = [sys.executable, "-c", head + text]
    return launch_program(program, ranks, limits=Limits(patience), logs=logs)


def test_every_rank_is_told_its_place(capfd: Capture, tmp_path: Path) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE TORCHELASTIC_USE_AGENT_STORE"
    show = f"print([os.environ[name] for name in '{names}'.split()])"
    assert script(show, 2, logs=tmp_path) == 0
    assert (tmp_path / "rank-1.log").read_text() == "['1', '1', '2', '2', 'True']\n"
    assert capfd.readouterr().out == "['0', '0', '2', '2', 'True']\n"


def test_cores_are_shared_and_memory_is_kept(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "77")
    names = "OMP_NUM_THREADS MALLOC_TRIM_THRESHOLD_ MALLOC_MMAP_THRESHOLD_"
    assert script(f"print(*[os.environ[name] for name in '{names}'.split()])", 1) == 0
    threads, trim, mapped = map(int, capfd.readouterr().out.split())
    assert (threads, trim) == (os.cpu_count(), 77)
    assert mapped >= 1 << 30


def test_only_errors_of_other_ranks_are_shown_with_their_rank(capfd: Capture) -> None:
    assert script("print('out', rank); print('one\\ntwo', file=sys.stderr)", 2) == 0
    out, err = capfd.readouterr()
    assert out == "out 0\n"
    assert sorted(err.splitlines()) == ["[rank 1] one", "[rank 1] two", "one", "two"]


def test_logs_keep_what_every_rank_prints(capfd: Capture, tmp_path: Path) -> None:
    logs = tmp_path / "deep" / "logs"
    assert script("print('out', rank); print('err', rank, file=sys.stderr)", 2, logs=logs) == 0
    for rank in range(2):
        kept = (logs / f"rank-{rank}.log").read_text().splitlines()
        assert sorted(kept) == [f"err {rank}", f"out {rank}"]
    out, err = capfd.readouterr()
    assert out == "out 0\n"
    assert sorted(err.splitlines()) == ["[rank 1] err 1", "err 0"]


def test_a_folder_for_logs_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write the logs of rank 0"):
        script("time.sleep(60)", logs=tmp_path / "file" / "logs")


def test_a_rank_that_prints_much_does_not_block(capfd: Capture) -> None:
    assert script("sys.stderr.write('y' * 10**6)") == 0
    assert capfd.readouterr().err.count("y") == 3 * 10**6


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(2 if rank == 1 else 0)", 2),
        ("sys.exit(75)", 75),
        ("sys.exit(75 if rank == 2 else 0)", 75),
        ("os.kill(os.getpid(), signal.SIGSEGV) if rank == 1 else time.sleep(60)", 1),
    ],
)
def test_the_exit_code_is_that_of_the_ranks(text: str, code: int) -> None:
    begin = time.monotonic()
    assert script(text) == code
    assert time.monotonic() - begin < SETTLED


def test_the_ranks_that_are_left_are_ended_even_if_they_do_not_listen(capfd: Capture) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    begin = time.monotonic()
    assert script(deaf + "time.sleep(0.5 if rank == 1 else 60); sys.exit(3)") == 3
    assert time.monotonic() - begin < SETTLED
    assert capfd.readouterr().err == "error: rank 1 exited with code 3\n"


def test_a_rank_that_stays_when_the_others_are_done_is_named(capfd: Capture) -> None:
    assert script("time.sleep(60 if rank == 1 else 0)", patience=0.5) == 1
    assert "rank 1 still running 0.5 s after rank" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("handler", "number", "code"),
    [
        ("lambda *_: sys.exit(75)", "SIGTERM", 75),
        ("signal.SIG_DFL", "SIGTERM", 143),
        ("lambda *_: sys.exit(75)", "SIGUSR1", 75),
        ("signal.default_int_handler", "SIGINT", 130),
    ],
)
def test_signals_to_the_launcher_reach_every_rank(
    capfd: Capture, tmp_path: Path, handler: str, number: str, code: int
) -> None:
    text = f"""
signal.signal(signal.{number}, {handler})
open(os.path.join({str(tmp_path)!r}, str(rank)), "w").close()
while rank == 1 and len(os.listdir({str(tmp_path)!r})) < 3:
    time.sleep(0.01)
if rank == 1:
    os.kill(os.getppid(), signal.{number})
time.sleep(60)
"""
    assert script(text) == code
    assert "error:" not in capfd.readouterr().err


def test_a_signal_that_was_ignored_before_is_not_passed_on() -> None:
    """As `nohup` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert script("os.kill(os.getppid(), signal.SIGHUP); time.sleep(0.5)", 1) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_comes_while_ranks_are_started_reaches_those_that_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(self: LocalRanks, rank: int, *given: Any) -> RankProcess:
        if rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return started(self, rank, *given)

    started = LocalRanks.start
    monkeypatch.setattr(LocalRanks, "start", start)
    begin = time.monotonic()
    assert script("time.sleep(60)", 2) == 143
    assert time.monotonic() - begin < SETTLED


PAUSE = """
import os, signal, subprocess, sys, time
from pathlib import Path
seen = Path(sys.argv[1])
parent = os.getppid()
if os.environ["RANK"] == "0":
    seen.touch()
    begin = time.monotonic()
    while time.monotonic() - begin < 10:
        last = time.monotonic()
        time.sleep(0.01)
        if time.monotonic() - last > 1.5:
            sys.exit(print("paused"))
else:
    while not seen.exists():
        time.sleep(0.01)
    waker = ["sh", "-c", f"sleep 2; kill -CONT {parent}"]
    subprocess.Popen(waker, start_new_session=True)
    os.kill(parent, signal.SIGTSTP)
"""


def test_a_paused_launcher_pauses_its_ranks(tmp_path: Path) -> None:
    """In a process of its own: a shell takes its terminal back from a stopped test run."""
    (tmp_path / "pause.py").write_text(PAUSE)
    program = [sys.executable, str(tmp_path / "pause.py"), str(tmp_path / "seen")]
    launcher = (
        f"from penstock.run.launch.launcher import *; sys.exit(launch_program({program!r}, 2))"
    )
    done = subprocess.run(
        [sys.executable, "-c", launcher],
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "paused\n", "")


def test_twenty_launches_in_a_row_and_four_at_once_find_a_port() -> None:
    meet = """
import socket
store = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
socket.create_connection(store).close()
"""
    assert [script(meet, 2) for _ in range(20)] == [0] * 20
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: script(meet, 2), range(8))) == [0] * 8


def test_a_command_of_penstock_is_launched(capfd: Capture) -> None:
    assert launch(["--version"], 1) == 0
    assert capfd.readouterr().out.strip()


def test_no_ranks_are_refused() -> None:
    with pytest.raises(ShapeError, match="0 ranks cannot run anything"):
        launch(["--version"], 0)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "0"}, "WORLD_SIZE and MASTER_ADDR and MASTER_PORT not set"),
        ({"RANK": "x"}, "RANK is 'x', but must be an integer"),
        ({"RANK": "4"}, "RANK is 4, but WORLD_SIZE is 4"),
        ({"RANK": "-1"}, "RANK is '-1'"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(
    environment: dict[str, str], message: str
) -> None:
    whole = {"WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    given = environment if environment == {"RANK": "0"} else whole | environment
    with pytest.raises(ShapeError, match=message):
        read_place(given)
