"""The manners of the command line: exit codes, where words go, and what it does when it fails."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import Penstock
from clock import within
from penstock import __version__

COMMAND = [sys.executable, "-m", "penstock"]


def test_version_and_help_are_data(penstock: Penstock) -> None:
    assert penstock("--version") == (0, f"{__version__}\n", "")
    for line in ("--help", "-h"):
        answer = penstock(line)
        assert (answer.code, answer.err) == (0, "")
        for verb in ("list", "show", "check", "simulate", "compare", "bench"):
            assert f"\n  {verb} " in answer.out


def test_nothing_at_all_is_misuse_and_explained_on_stderr(penstock: Penstock) -> None:
    answer = penstock("")
    assert (answer.code, answer.out) == (2, "")
    assert "Usage: penstock" in answer.err


def test_a_long_word_is_not_repeated_whole(penstock: Penstock) -> None:
    answer = penstock("y" * 700_000)
    assert answer.code == 2
    assert answer.err.startswith("error: no such command 'yyy")
    assert len(answer.err) < 500


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("shwo", "no such command 'shwo'", "`penstock --help` shows what it takes"),
        ("list --nope", "no such option: --nope", "`penstock list --help`"),
        ("simulate", "missing argument 'NAME|FILE'", "`penstock simulate --help`"),
        ("simulate seq1f1b -p x -m 8", "invalid value for '-p'", "`penstock simulate --help`"),
        ("simulate seq1f1b -p", "'-p' requires an argument", "--help` shows"),
        ("simulate seq1f1b", "needs a number of devices", "for example -p 4 -m 8"),
        ("simulate seq1f1b -p 4", "needs a number of devices", "for example -p 4 -m 8"),
        ("simulate seq1f1 -p 4 -m 8", "no schedule is called 'seq1f1'", "'seq1f1b'"),
        ("simulate seq1f1b -p 0 -m 8", "devices is 0", "1 or more"),
        ("simulate seq1f1b -p 4 -m -8", "microbatches is -8", "1 or more"),
        ("simulate seq1f1b -p 4 -m 8 -k 0", "slices is 0", "1 or more"),
        ("simulate 1f1b -p 4 -m 8 -k 2", "does not cut sequences", "leave -k out"),
        ("simulate 1f1b -p 4 -m 8 -v 2", "1 chunk(s) per device, not 2", "-v 1"),
        ("simulate seq1f1b -p 64 -m 1000000000", "above the limit", "lower the number"),
        ("simulate seq1f1b -p 99999999999999999999 -m 1", "is deeper than 4,096", "lower"),
        ("simulate 1f1b -p 3000000 -m 1", "3,000,000 devices is deeper than 4,096", "copies of"),
        ("simulate 1f1b -p 4 -m 8 -o group=2", "has no option 'group'", "has no options"),
        ("simulate 1f1b -p 4 -m 8 -o group", "where key=value is expected", "-o key=value"),
        ("simulate 1f1b -p 4 -m 8 -o a=1 -o a=2", "-o sets a twice", "leave one"),
        ("simulate 1f1b -p 4 -m 8 --times F=x", "--times F is 'x'", "1e-3 or 1/3"),
        ("simulate 1f1b -p 4 -m 8 --times B=2", "no time called 'B'", "B is I + W"),
        ("simulate 1f1b -p 4 -m 8 --times Q=2", "no time called 'Q'", "one of: F, I, W"),
        ("simulate 1f1b -p 4 -m 8 --times F=-1", "must not be negative", "0 or more"),
        ("simulate 1f1b -p 4 -m 8 --times F=1,F=1", "--times sets F twice", "leave one"),
        ("simulate 1f1b -p 4 -m 8 --sizes acts=1", "no size called 'acts'", "'act'"),
        ("simulate 1f1b -p 4 -m 8 --hop -1", "--hop is -1", "0 or more"),
        ("simulate 1f1b -p 4 -m 8 --times F=1/999999937,I=1/999999929", "ticks", "fewer digits"),
        ("simulate nowhere.txt", "nowhere.txt", ""),
        ("simulate /", "/", ""),
        ("show 1f1b -p 4 -m 8 --width 3", "3 is not in the range", "`penstock show --help`"),
        ("show 1f1b -p 4 -m 8 --svg - --text -", "would both be written to stdout", "of its own"),
        ("show 1f1b -p 4 -m 8 --json --html -", "would both be written to stdout", "of its own"),
        ("bench", "", ""),
    ],
)
def test_a_bad_request_ends_at_once_with_a_sentence_and_a_hint(
    penstock: Penstock, line: str, message: str, hint: str
) -> None:
    with within(2):
        answer = penstock(line)
    assert (answer.code, answer.out) == (2, ""), answer
    first, *rest = answer.err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert rest[0].startswith("hint: ")
    assert hint in rest[0]
    assert "Traceback" not in answer.err


@pytest.mark.processes
def test_a_reader_that_goes_away_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, "list"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.processes
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_without_a_traceback() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "list"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output cannot be written: No space left")


def test_an_interrupt_ends_quietly_with_130(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    monkeypatch.setattr("penstock.cli.list.registry", interrupted)
    # A shell that runs the tests in the background makes them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert penstock("list") == (130, "", "")
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.processes
def test_python_m_penstock_is_the_same_command() -> None:
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


@pytest.mark.processes
@pytest.mark.parametrize("given", [{}, {"OPENBLAS_NUM_THREADS": "7"}])
def test_the_environment_of_later_processes_is_as_it_was(given: dict[str, str]) -> None:
    script = (
        "import os; from penstock.cli.main import main; before = dict(os.environ);"
        "main(['--version']); assert dict(os.environ) == before, os.environ"
    )
    without = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", script], check=True, env=without | given)


@pytest.mark.processes
def test_an_answer_that_would_be_lost_is_refused_and_nobody_need_read_words() -> None:
    """Closed by a shell (`>&-`), a stream is None; words on stderr may be left unread."""
    closed = [f"{shlex.join([*COMMAND, 'list'])} {stream}" for stream in (">&-", "2>&-")]
    lost, unread = (subprocess.run(["sh", "-c", e], capture_output=True, text=True) for e in closed)
    assert (lost.returncode, lost.stderr.splitlines()[0]) == (
        2,
        "error: stdout is closed, so that an answer would be lost",
    )
    assert (unread.returncode, unread.stderr) == (0, "")
    assert "seq1f1b" in unread.stdout
