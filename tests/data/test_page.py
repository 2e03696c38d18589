"""The page about data says what the code does."""

import re
from pathlib import Path

import pytest

from penstock.data import Data
from penstock.data.arrays import PROBE, PROBES
from penstock.data.assemble import LOOK_AT_ALL_UP_TO
from penstock.data.mixture import MIXTURE_BLOCK
from penstock.data.settings import LONGER, PACKINGS, POLICIES, RECORD_FORMATS, SOURCES
from penstock.data.sources import MOST_REPLACED
from penstock.data.tokenise import PIECE_BYTES

pytestmark = pytest.mark.torch

PAGE = (Path(__file__).parents[2] / "docs/reference/data.md").read_text()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    microbatches = names["microbatches"]
    assert isinstance(microbatches, tuple)
    assert [(mb.rows, mb.length) for mb in microbatches] == [(1, 1024)] * 4
    data = names["data"]
    assert isinstance(data, Data)
    assert data.held_out


def test_every_source_has_its_row() -> None:
    assert _rows("## Sources") == SOURCES


def test_every_format_packing_and_policy_has_its_row() -> None:
    assert ("auto", *_rows("## Records")) == RECORD_FORMATS
    assert _rows("## Packing") == PACKINGS
    assert _rows("## Policies") == POLICIES
    for way in LONGER:
        assert f"`{way}`" in PAGE or way == "refuse"


def _rows(heading: str) -> tuple[str, ...]:
    """First words of the table under a heading."""
    section = PAGE.split(f"{heading}\n")[1].split("\n## ")[0]
    return tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"Up to {LOOK_AT_ALL_UP_TO:,} tokens" in PAGE
    assert f"{PROBES} pieces of {PROBE:,} tokens" in PAGE
    assert f"a piece of {PIECE_BYTES:,} bytes" in PAGE
    assert f"Of every {MIXTURE_BLOCK:,} samples" in PAGE
    assert MOST_REPLACED == 0.1
    assert "more than a tenth of such characters" in PAGE
