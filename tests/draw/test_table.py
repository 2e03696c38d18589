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


def test_where_numbers_have_no_room_side_by_side_they_stand_below_each_other() -> None:
    head = ("plan", "mesh", "tokens/s", "GiB", "exposed s")
    rows = [("1", "tensor=2,replicas=4", "383,633", "22.3", ""), ("2", "-", "377,967", "9", "0.1")]
    assert render_table(head, rows, width=30, color=False).splitlines() == [
        "plan 1",
        "mesh        tensor=2,replicas=",
        "            4",
        "tokens/s    383,633",
        "GiB         22.3",
        "",
        "plan 2",
        "mesh        -",
        "tokens/s    377,967",
        "GiB         9",
        "exposed s   0.1",
    ]
    assert "383,633" in render_table(head, rows, width=60, color=False).splitlines()[2]


def test_the_best_cell_is_bold_where_there_is_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m  2*" in render_table(("peak",), [("2*",)], color=True)
    assert "\x1b" not in render_table(("peak",), [("2*",)], color=False)
