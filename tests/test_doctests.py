"""Examples in docstrings are tests.

Pytest's own way would import every module, torch and all, to see whether there is an example in it.
The prompt in the text tells that too, and a module is imported when its examples are run.
"""

import doctest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from house.source import python_sources

ROOT = Path(__file__).resolve().parents[1]
PROMPT = ">>" + "> "


def with_examples() -> Iterator[Any]:
    """Every module that shows a prompt; those of the layers with torch are marked so."""
    for source in python_sources(ROOT):
        if PROMPT in source.text:
            marks = [pytest.mark.torch] if source.runs_torch else []
            yield pytest.param(source.module, marks=marks)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not path.name.startswith("test_") and PROMPT in path.read_text():
            yield ".".join(path.relative_to(ROOT / "tests").with_suffix("").parts)


@pytest.mark.parametrize("module", list(with_examples()))
def test_examples_give_what_they_show(module: str) -> None:
    result = doctest.testmod(import_module(module))
    assert result.attempted
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples of {module}"


def test_a_wrong_example_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_example.py").write_text(f'"""Wrong.\n\n{PROMPT}1 + 1\n3\n"""\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AssertionError, match="1 of 1 examples of wrong_example"):
        test_examples_give_what_they_show("wrong_example")
