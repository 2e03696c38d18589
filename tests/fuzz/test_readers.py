"""Whatever a file or a command line says, it is read, or refused in our own words, at once."""

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import process_time
from warnings import catch_warnings, simplefilter

import pytest

from clock import slowness
from fuzz.mutate import mutants
from fuzz.readers import READERS, Reader
from penstock.errors import PenstockError

pytestmark = pytest.mark.torch

INPUTS = 600
"""Inputs of each format; `--fuzz 100000` takes more."""
LONGEST = 2.0
"""Seconds of the processor that an input may take on a busy machine."""
MOST_GROWTH = 600 * 2**20
"""Bytes by which a whole run over a format may raise the peak of the process."""


def changed(name: str, inputs: int = INPUTS) -> Iterator[str]:
    """The inputs of a format: changed samples, the same each time."""
    reader = READERS[name]
    return mutants(reader.samples, max(1, round(reader.share * inputs)), name)


def complaint(reader: Reader, content: str, folder: Path) -> str:
    """What is wrong with how an input was taken; empty where nothing is."""
    start = process_time()
    try:
        reader.read(content, folder)
    except PenstockError as error:
        if len(str(error)) > 3_000:
            return f"a message of {len(str(error))} letters"
    except BaseException as error:  # a panic of a library in Rust is no Exception
        return f"{type(error).__name__}: {str(error)[:200]}"
    seconds = process_time() - start
    slow = seconds > LONGEST and seconds > LONGEST * slowness(process_time)
    return f"{seconds:.1f} s" if slow else ""


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_every_input_is_read_or_refused_at_once(
    name: str, tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = READERS[name]
    inputs = changed(name, pytestconfig.getoption("--fuzz") or INPUTS)
    before, wrong, count = _peak(), [], 0
    with catch_warnings():
        simplefilter("ignore")
        _read_samples(reader, tmp_path)
        for content in inputs:
            count += 1
            if problem := complaint(reader, content, tmp_path):
                wrong.append(f"{problem}: {content[:300]!r}")
        capsys.readouterr()
    assert not wrong, "\n".join([f"{len(wrong)} of {count}", *wrong[:20]])
    assert _peak() - before < MOST_GROWTH


def _read_samples(reader: Reader, folder: Path) -> None:
    """What is compiled or imported at the first use is no fault of an input."""
    for sample in reader.samples:
        with suppress(PenstockError):  # it may name files that are not here
            reader.read(sample, folder)


def _peak() -> int:
    """Most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_seed_gives_the_same_inputs() -> None:
    assert list(mutants(["0F0 0B0"], 50, "x")) == list(mutants(["0F0 0B0"], 50, "x"))
    assert list(mutants(["0F0 0B0"], 50, "x")) != list(mutants(["0F0 0B0"], 50, "y"))
