"""Tables of text."""

import pytest

from penstock.draw.table import render_table


def test_numbers_stand_right_and_words_left() -> None:
    lines = render_table(
        ("name", "peak"), [("a", "1"), ("bcdefg", "200")], color=False
    ).splitlines()
    assert lines[0] == "name     peak"
    assert lines[2:] == ["a           1", "bcdefg    200"]


def test_brackets_stay_as_they_are() -> None:
    assert "[bold]" in render_table(("name",), [("[bold]",)], color=False)


def test_a_row_is_broken_only_where_the_page_ends() -> None:
    row = [("word " * 40).strip()]
    assert len(render_table(("name",), [row], color=False).splitlines()) == 3
    assert len(render_table(("name",), [row], width=50, color=False).splitlines()) > 3


def test_the_best_cell_is_bold_where_there_is_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m  2*" in render_table(("peak",), [("2*",)], color=True)
    assert "\x1b" not in render_table(("peak",), [("2*",)], color=False)
