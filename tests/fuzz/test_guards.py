"""The fuzzers find what was once wrong: without a guard of the product, its fuzzer complains.

A fuzzer that is always content proves nothing. Each mistake here was made by an older version. The
guard that refuses it now is taken away, and the inputs that the fuzzer of its format has anyway,
with their fixed seeds, must show it. With the guard, the same input is refused in our own words.
"""

import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import pytest
from pydantic import Field

from fuzz.readers import READERS, Reader
from fuzz.test_paths import FOUND, KINDS, NAMED, refused
from fuzz.test_readers import INPUTS, changed, complaint
from loops import one_of
from penstock.data.tokenizer import HuggingFace, Tokens
from penstock.errors import PenstockError
from penstock.files.json_object import decode_json
from penstock.files.lock import hold_lock
from penstock.files.toml_places import line_of, places
from penstock.schedules import registry
from penstock.train.config.sections import RunSettings
from penstock.train.config.settings import Settings

pytestmark = [pytest.mark.torch, pytest.mark.long]

ROOM = 1 << 29
"""Bytes that a reader without a guard may take, so that it ends and the machine does not."""
ENDLESS = 10**30
MORE = 14
"""Times as many inputs as the fuzzer reads: few of them have the mistake and no other."""


class AnyThreads(RunSettings):
    threads: int = 1


class AnySettings(Settings):
    run: AnyThreads = Field(default_factory=AnyThreads)


def _places_from_the_top(text: str) -> object:
    """The number of each line, counted from the first one."""
    offset = 0
    for line in text.splitlines(keepends=True):
        line_of(text, offset)
        offset += len(line)
    return places(text)


def _names_a_file(target: str) -> bool:
    """`os.path` knows nothing of names that are too long; Path raises."""
    return target not in registry() and ("/" in target or "." in target or Path(target).exists())


def _decode(path: Path, content: bytes) -> Any:
    return decode_json(content.decode(), str(path))


def _encode_all(self: HuggingFace, texts: list[str]) -> list[Tokens]:
    return [one.ids for one in self._library.encode_batch(texts)]


@contextmanager
def _claimed(folder: Path, lock: Path, _: str) -> Iterator[bool]:
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(lock) as held:
        yield held


Away = Mapping[str, object]
"""Dotted names of guards in the product, and what stands in their place."""


class Mistake(NamedTuple):
    """Something that an older version took: which inputs of a fuzzer are such, and the guard."""

    format: str
    pattern: str
    complaint: str
    away: Away


_ENVIRONMENT = "penstock.run.process.environment"
_CSV: Away = {
    "penstock.files.torch_csv.MAX_OPS": ENDLESS,
    "penstock.core.shape.MAX_OPS": ENDLESS,
    "penstock.files.torch_csv.missing_ops": lambda *_: "",
}
_THREADS: Away = {"penstock.train.config.load.Settings": AnySettings}

MISTAKES = {
    "threads without end in a file": Mistake(
        "toml", r"threads = \d{6,}", r"AssertionError", _THREADS
    ),
    "threads without end in --set": Mistake(
        "overrides", r"run\.threads=\d{6,}", r"AssertionError", _THREADS
    ),
    "a port that there is not": Mistake(
        "environment",
        r"\bMASTER_PORT=\d{8,}",
        r"AssertionError",
        {f"{_ENVIRONMENT}.LAST_PORT": ENDLESS},
    ),
    "a world of twenty digits": Mistake(
        "environment",
        r"\bWORLD_SIZE=\d{19,20}\b",
        r"AssertionError",
        {f"{_ENVIRONMENT}.MOST_RANKS": ENDLESS},
    ),
    "an interface that there is not": Mistake(
        "environment",
        r"\bGLOO_SOCKET_IFNAME=(?!lo\n)",
        r"OSError: no interface",
        {f"{_ENVIRONMENT}.refuse_environment": lambda _: None},
    ),
    "a line that is looked for from the top": Mistake(
        "toml",
        r"(?s).{600000}",
        r"\d+\.\d s",
        {"penstock.train.config.document.places": _places_from_the_top},
    ),
    "a schedule's name that is too long for a file": Mistake(
        "toml",
        r'schedule = "[^"\n]{256,}"',
        r"OSError: .*File name too long",
        {"penstock.train.loop.setup.names_a_file": _names_a_file},
    ),
    "a rope of 10^18": Mistake(
        "config.json",
        r'(theta|factor)": \d{19}',
        r"AssertionError",
        {"penstock.arch.limits.LARGEST_OF_MODEL": ENDLESS},
    ),
    "a window of 10^18": Mistake(
        "config.json",
        r'"sliding_window": \d{19}',
        r"AssertionError",
        {
            "penstock.arch.huggingface_keys.LARGEST_OF_MODEL": ENDLESS,
            "penstock.arch.field_rules.LARGEST_OF_MODEL": ENDLESS,
        },
    ),
    "10^18 layers": Mistake(
        "config.json",
        r'"num_hidden_layers": \d{19}',
        r"AssertionError|MemoryError",
        {
            "penstock.arch.huggingface_keys.MOST_MODEL_LAYERS": ENDLESS,
            "penstock.arch.field_rules.MOST_MODEL_LAYERS": ENDLESS,
        },
    ),
    "a number of 5,000 digits": Mistake(
        "config.json",
        r"\d{5000}",
        r"ValueError: Exceeds the limit",
        {"penstock.files.json_object._decode": _decode},
    ),
    "half a character in an index": Mistake(
        "index",
        r"\\ud800",
        r"UnicodeEncodeError",
        {
            "penstock.files.json_object._decode": _decode,
            "penstock.model.io.safetensors_files.open_regular": lambda path: path.open("rb"),
        },
    ),
    "a tokenizer without an unknown token": Mistake(
        "tokenizer.json",
        r'^(?!.*"unk_token": "<unk>")',
        r"Exception: .*Missing",
        {"penstock.data.tokenizer.HuggingFace.encode_all": _encode_all},
    ),
    "a stage of seven digits": Mistake("csv", r"(?<!\d)\d{7,9}[FBIW]\d", r"MemoryError", _CSV),
    "a microbatch of seven digits": Mistake("csv", r"\d[FBIW]\d{7,9}(?!\d)", r"MemoryError", _CSV),
}


@pytest.mark.parametrize("name", one_of(3, ((name,) for name in MISTAKES)))
def test_without_a_guard_the_fuzzer_of_its_format_complains(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    format, pattern, expected, away = MISTAKES[name]
    reader = READERS[format]
    tried, content, problem = 0, "", ""
    with catch_warnings():
        simplefilter("ignore")
        with _without(away, monkeypatch):
            for content in changed(format, MORE * INPUTS):
                if re.search(pattern, content):
                    tried += 1
                    problem = complaint(reader, content, tmp_path)
                    if re.match(expected, problem):
                        break
        capsys.readouterr()
        assert re.match(expected, problem), f"not said of {tried} inputs that have {pattern}"
        said = f"{problem}: {content[:300]!r}"
        assert not complaint(reader, content, tmp_path), f"with its guard: {said}"
        assert _refused(reader, content, tmp_path), f"with its guard it is read: {said}"


def _refused(reader: Reader, content: str, folder: Path) -> bool:
    try:
        reader.read(content, folder)
    except PenstockError:
        return True
    return False


class Found(NamedTuple):
    """Something in the place of a file that an older version waited for, or failed at."""

    reader: str
    kind: str
    complaint: type[Exception]
    away: Away


_LAYERS: Away = {"penstock.cost.layers._file": lambda path: Path(path).read_text()}
_STREAM: Away = {"penstock.files._text": lambda file, _: file.read().decode()}
_LOCK: Away = {"penstock.train.loop.run_lock._claimed": _claimed}

FOUND_THERE = {
    "layers without end": Found("best --layers", "a device without end", MemoryError, _LAYERS),
    "a stream without end": Found("check -", "a device without end", MemoryError, _STREAM),
    "a stream of terabytes": Found("check -", "a sparse file", MemoryError, _STREAM),
    "a lock that is a folder": Found("lock of a run", "a folder", IsADirectoryError, _LOCK),
    "a lock that is a socket": Found("lock of a run", "a socket", OSError, _LOCK),
    "a lock that leads to itself": Found("lock of a run", "a link to itself", OSError, _LOCK),
}


@pytest.mark.parametrize("name", FOUND_THERE)
def test_without_a_guard_what_is_no_file_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, kind, expected, away = FOUND_THERE[name]
    read = {**NAMED, **FOUND}[reader]
    places = [tmp_path / "with" / "it", tmp_path / "without" / "it"]
    for place in places:
        place.parent.mkdir()
        KINDS[kind](place)
    assert refused(read, places[0]), f"{reader} takes {kind}, which has a guard"
    with _without(away, monkeypatch), pytest.raises(expected):
        refused(read, places[1])


@contextmanager
def _without(away: Away, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The product without these guards, in a process with little room."""
    with monkeypatch.context() as patch, _room():
        for guard, stand_in in away.items():
            patch.setattr(guard, stand_in)
        yield


@contextmanager
def _room() -> Iterator[None]:
    """Memory ends soon after what is taken now."""
    most, last = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, last))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, last))
