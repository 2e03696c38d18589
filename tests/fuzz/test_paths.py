"""What is no file where a file is expected: nothing is waited for, and nothing is read without end.

A folder that came from elsewhere may hold anything under a known name: another folder, a pipe that
nobody writes to, a device without end, a link to itself. A name may be too long for the system.
"""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

import numpy as np
import pytest

from fuzz.readers import TOML
from loops import all_cases
from penstock.cli.main import main
from penstock.data.arrays import open_array
from penstock.data.cache import read_cache
from penstock.data.paths import find_files
from penstock.data.tokenizer import tokenizer
from penstock.errors import PenstockError
from penstock.files.json_object import read_object
from penstock.model.io.kept_files import kept_of_model
from penstock.model.io.safetensors_files import INDEX, SINGLE, locate, shapes_in
from penstock.train.checkpoint import manifest, newest_in
from penstock.train.config.load import load, loads
from penstock.train.loop.run_lock import claim_export, claim_run
from penstock.train.loop.setup import layout_of
from penstock.train.records.metrics import read_metrics, take_back

pytestmark = pytest.mark.torch

PATIENCE = 20.0
"""Seconds of the clock after which something waits, or reads without end, on any machine."""

LONGEST_MESSAGE = 3_000

Read = Callable[[Path], object]


def _move(path: Path, target: Path) -> None:
    """Under another name; a link to itself leads to itself there too."""
    itself = path.is_symlink() and os.readlink(path) == path.name
    os.rename(path, target)
    if itself:
        target.unlink()
        _loop(target)


def _beside(path: Path) -> object:
    """Tokens whose starts of documents are in another file."""
    np.save(path.with_name("tokens.npy"), np.arange(8, dtype=np.uint16))
    _move(path, path.with_name("tokens.documents.npy"))
    return open_array(path.with_name("tokens.npy"), "uint16")


def _called(name: str, read: Read) -> Read:
    """Read it under a name that is looked for in its folder."""

    def renamed(path: Path) -> object:
        _move(path, path.with_name(name))
        return read(path.parent)

    return renamed


def _held(path: Path) -> object:
    with claim_export(path):
        return None


def _run(folder: Path) -> object:
    with claim_run(loads(TOML, [f"run.directory={json.dumps(str(folder))}"])):
        return None


def _stored(path: Path) -> object:
    folder = path.parent / "step-00000008"
    folder.mkdir()
    _move(path, folder / manifest.FILE)
    return newest_in(path.parent)


def _run_of(path: Path) -> object:
    """A training whose schedule is this."""
    schedule = json.dumps(os.path.join(path.parent, path.name))
    return layout_of(loads(TOML, [f"pipeline.schedule={schedule}"]), 2)


def _stdin(path: Path) -> object:
    """A schedule on stdin; what a shell cannot open never gets there."""
    try:
        stream = path.open("rb")
    except OSError:
        return None
    with TextIOWrapper(stream) as text, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", text)
        return main(["check", "-"])


NAMED: dict[str, Read] = {
    "check": lambda path: main(["check", str(path)]),
    "check -": _stdin,
    "show": lambda path: main(["show", str(path)]),
    "compare": lambda path: main(["compare", "gpipe", str(path), "-p", "2", "-m", "2"]),
    "verify": lambda path: main(["verify", str(path)]),
    "best --layers": lambda path: main(["best", "-p", "2", "-m", "2", "--layers", str(path)]),
    "train": lambda path: main(["train", str(path), "--show"]),
    "export": lambda path: main(["export", str(path)]),
    "settings": load,
}
"""What a person names; a pipe is waited for, since it may be `<(a command)`."""

FOUND: dict[str, Read] = {
    "config.json": lambda path: read_object(path, "give another"),
    "index": _called(INDEX, locate),
    "weights": _called(SINGLE, locate),
    "shapes": shapes_in,
    "kept files": lambda path: kept_of_model(path.parent),
    "tokenizer": lambda path: tokenizer(str(path)),
    "tokenizer of a folder": _called("tokenizer.json", lambda path: tokenizer(str(path))),
    "tokens": _called("some.npy", lambda path: open_array(path / "some.npy", "uint16")),
    "raw tokens": _called("some.bin", lambda path: open_array(path / "some.bin", "uint16")),
    "starts of documents": _beside,
    "data": lambda path: find_files([str(path)], lambda _: True, "files"),
    "cache": lambda path: read_cache(path, "key"),
    "manifest": _stored,
    "settings of a run": _called("config.toml", lambda path: main(["export", str(path)])),
    "metrics": read_metrics,
    "metrics taken back": lambda path: take_back(path, 1),
    "folder of an export": _held,
    "folder of a run": _run,
    "lock of a run": _called(".running", _run),
    "schedule of a run": _run_of,
}
"""What is looked for, or named in a file that others wrote."""


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # the address of a socket has at most 108 bytes
        server.bind(path.name)
        os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a pipe": _pipe,
    "a device without end": _endless,
    "a link to itself": _loop,
    "a socket": _socket,
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 40) and None,
    "an empty file": Path.touch,
    "a sparse file": lambda path: path.touch() or os.truncate(path, 1 << 40),
}


class LateError(BaseException):
    """Nobody catches it on the way."""


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise LateError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except LateError:
        pytest.fail(f"it takes longer than {seconds:g} s")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refused(read: Read, path: Path) -> bool:
    """Whether it is refused, within the limits that hold for everything that is read."""
    said = ""
    with _within(PATIENCE):
        try:
            answer = read(path)
        except PenstockError as error:
            answer, said = None, str(error)
    assert len(said) < LONGEST_MESSAGE
    assert type(answer) is not int or answer in (0, 2)
    return bool(said) or answer == 2


OWN = ("cache", "metrics", "metrics taken back")
"""What a run has written itself, however much it is; it is found where the run has made it."""


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_neither_waited_for_nor_read_without_end(
    kind: str, tmp_path: Path
) -> None:
    left_out = {"a pipe": tuple(NAMED), "a sparse file": OWN}.get(kind, ())
    with all_cases() as case:
        for name, read in {**NAMED, **FOUND}.items():
            if name in left_out:
                continue
            folder = tmp_path / name
            folder.mkdir()
            KINDS[kind](folder / "it")
            with case(name):
                refused(read, folder / "it")


LOOKED_FOR = (
    *("index", "weights", "tokenizer of a folder", "tokens", "raw tokens", "manifest"),
    *("starts of documents", "settings of a run", "lock of a run", "kept files", *OWN),
)
"""What has one name only."""


@pytest.mark.parametrize(
    "name",
    ["x" * 300, "x" * 5000, "\x1b[2J", "\udc80", "~", "-"],
    ids=["long", "longer", "controls", "no character", "home", "stdin"],
)
def test_a_name_that_hardly_a_file_has_is_refused(name: str, tmp_path: Path) -> None:
    with all_cases() as case:
        for label, read in {**NAMED, **FOUND}.items():
            if label not in LOOKED_FOR:
                with case(label):
                    refused(read, tmp_path / name)


def test_a_nul_in_a_name_is_refused(tmp_path: Path) -> None:
    """No command line can hold one, but a file can."""
    readers = {"settings": load, **{name: FOUND[name] for name in FOUND if name not in LOOKED_FOR}}
    del readers["folder of an export"]  # settings refuse it
    with all_cases() as case:
        for label, read in readers.items():
            with case(label):
                refused(read, tmp_path / "a\0b")
