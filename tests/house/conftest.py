"""Fixtures of the house tests, and the table of sizes that `make check` prints."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from house.sizes import table

ROOT = Path(__file__).resolve().parents[2]

Plant = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def house() -> Path:
    """The root of this repository."""
    return ROOT


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write a small project, given as path -> text, and return its root."""

    def write(files: Mapping[str, str]) -> Path:
        for path, text in files.items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return tmp_path

    return write


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Only where the house is asked for by itself: reading all files takes seconds."""
    config = terminalreporter.config
    if config.option.collectonly or Path(config.args[0]).resolve() != Path(__file__).parent:
        return
    terminalreporter.section("size of the house, in lines")
    try:
        lines = table(ROOT)
    except SyntaxError as error:  # the rules fail on it too; the report must still be printed
        lines = [f"no table: {error}"]
    for line in lines:
        terminalreporter.write_line(line)
