from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import VERBS
from write_shell_sessions import PAGES, rewritten

SEARCHING = ("plan", "subllm", "ffn-fusion")
"""Pages whose commands search for a plan."""


def _case(page: Path) -> Any:
    marks = [pytest.mark.matrix] if page.stem in SEARCHING else []
    return pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.processes
@pytest.mark.parametrize("page", [*map(_case, PAGES)])
def test_what_a_page_shows_is_what_its_commands_print(page: Path) -> None:
    text = page.read_text()
    assert text == rewritten(text), "python scripts/write_shell_sessions.py writes the answers anew"


def test_the_reference_has_the_help_of_every_verb() -> None:
    page = PAGES[0].read_text()
    for verb in VERBS:
        assert f"\n$ penstock {verb} --help\n" in page
