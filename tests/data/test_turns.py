"""Processes that want the same file: one makes it, none is in another's way."""

import subprocess
import sys
import threading
from fcntl import LOCK_EX, flock
from pathlib import Path
from signal import SIGKILL

import pytest

from penstock.data import _turns
from penstock.data._turns import wait_for_turn
from penstock.data.sources import TextFiles
from penstock.data.tokenise import tokenise_source
from penstock.data.tokenizer import Bytes

SCRIPT = """
import sys
from pathlib import Path

from penstock.data.sources import TextFiles
from penstock.data.tokenise import tokenise_source
from penstock.data.tokenizer import Bytes


class Told(Bytes):
    def encode(self, text):
        Path(sys.argv[2], f"made-by-{sys.argv[3]}").touch()
        return super().encode(text)


print("ready", flush=True)
sys.stdin.read(1)
(found,), _ = tokenise_source(TextFiles([Path(sys.argv[1])]), Told(), Path(sys.argv[2]), None)
print(len(found.tokens), int(found.tokens.astype("i8").sum()))
"""


@pytest.mark.processes
def test_of_several_processes_one_tokenises_and_all_read_the_same(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be" * 50_000)
    cache = tmp_path / "cache"
    cache.mkdir()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(text), str(cache), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in running:  # all are loaded before the first may go
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin
        process.stdin.write("x")
        process.stdin.flush()
    answers = {process.communicate(timeout=60) for process in running}
    content = text.read_bytes()
    assert answers == {(f"{len(content)} {sum(content)}\n", "")}
    assert len(list(cache.glob("made-by-*"))) == 1
    assert not list(cache.glob("*.part"))


KILLED = """
import os, signal, sys
from pathlib import Path

from penstock.data.sources import TextFiles
from penstock.data.tokenise import tokenise_source
from penstock.data.tokenizer import Bytes

kill = lambda done, size: os.kill(os.getpid(), signal.SIGKILL)
tokenise_source(TextFiles([Path(sys.argv[1])]), Bytes(), Path(sys.argv[2]), kill)
"""


@pytest.mark.processes
def test_a_killed_process_gives_up_its_turn_and_leaves_no_tokens(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be")
    cache = tmp_path / "cache"
    done = subprocess.run([sys.executable, "-c", KILLED, str(text), str(cache)], timeout=60)
    assert done.returncode == -SIGKILL
    assert len(list(cache.glob("*.part"))) == 1
    assert not list(cache.glob("*.tokens"))
    (found,), _ = tokenise_source(TextFiles([text]), Bytes(), cache, None)
    assert bytes(found.tokens) == text.read_bytes()
    assert not list(cache.glob("*.part"))


def test_a_turn_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []
    entered = threading.Event()

    def second() -> None:
        entered.wait(10)
        with wait_for_turn(tmp_path / "x.tokens"):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with wait_for_turn(tmp_path / "x.tokens") as part:
        entered.set()
        thread.join(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert part == tmp_path / "x.part"


def test_who_gets_no_turn_in_time_works_under_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_turns, "LOCK_PATIENCE", 0.1)
    with (tmp_path / "x.lock").open("w") as holder:
        flock(holder, LOCK_EX)
        with wait_for_turn(tmp_path / "x.tokens") as part:
            assert part.name not in ("x.part", "x.tokens")
            assert part.suffix == ".part"


def test_without_locks_everyone_has_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(_turns, "flock", unsupported)
    with wait_for_turn(tmp_path / "x.tokens") as one, wait_for_turn(tmp_path / "x.tokens") as other:
        assert one != other
