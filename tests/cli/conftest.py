"""Runs command lines in this process and hands back what a shell would see."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.cli.main import main


class Answer(NamedTuple):
    """Exit code, stdout and stderr of one command line."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What stdout says as JSON."""
        return json.loads(self.out)


Penstock = Callable[[str], Answer]


@pytest.fixture
def penstock(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Penstock:
    """`penstock("simulate NAME -p 4 -m 8")`, on a screen of 100 columns without colour."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(line: str) -> Answer:
        code = main(line.split())
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run
