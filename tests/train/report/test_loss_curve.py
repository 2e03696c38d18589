"""Losses as columns of blocks, and tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.train.report.loss_curve import BLOCKS, binned, curve, sparkline, table
from train.samples import usual

FALLING = """\
4.000 █
      █▆
      ██▃
1.000 ███▁
      1  4
"""


def test_a_falling_loss_is_a_falling_picture() -> None:
    assert curve([4.0, 3.0, 2.0, 1.0], height=4) == FALLING


def test_a_sparkline_is_one_row() -> None:
    assert sparkline([4.0, 3.0, 2.0, 1.0]) == "█▆▃▁"


def test_many_steps_share_a_column_as_their_mean() -> None:
    assert binned([4.0, 2.0, 3.0, 1.0, 9.0], 2) == [3.0, (3.0 + 1.0 + 9.0) / 3]
    assert sparkline([4.0, 2.0, 3.0, 1.0], width=2) == sparkline([3.0, 2.0])


def test_a_loss_that_is_not_finite_leaves_a_gap() -> None:
    assert sparkline([2.0, float("nan"), 1.0]) == "█ ▁"


@pytest.mark.parametrize("losses", [[], [float("nan")], [float("inf")]])
def test_without_a_loss_nothing_is_drawn(losses: list[float]) -> None:
    assert curve(losses) == "no loss to draw\n"
    assert sparkline(losses) == ""


def test_a_loss_that_stays_is_a_flat_line() -> None:
    assert sparkline([2.0, 2.0]) == "▁▁"


@usual
@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.integers(1, 80), st.integers(1, 10))
def test_a_picture_keeps_its_size(losses: list[float], width: int, height: int) -> None:
    *rows, axis = curve(losses, width=width, height=height).splitlines()
    margin = axis.index(axis.strip()[0])
    assert len(rows) == height
    drawn = [row[margin:] for row in rows]
    assert max(map(len, drawn)) == min(width, len(losses))
    assert set("".join(drawn)) <= set(BLOCKS)
    assert all(block != " " for block in drawn[-1])


def test_a_table_has_numbers_on_the_right() -> None:
    lines = table(("name", "peak"), [("a", "1"), ("bcdefg", "200")]).splitlines()
    assert lines[0] == "name     peak"
    assert lines[2:] == ["a           1", "bcdefg    200"]


def test_a_table_takes_brackets_as_they_are() -> None:
    assert "[bold]" in table(("name",), [("[bold]",)])
