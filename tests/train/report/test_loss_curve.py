"""Losses as columns of blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.train.report.loss_curve import BLOCKS, bin_means, curve
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


def one_row(losses: list[float], width: int = 60) -> str:
    """The columns of a picture of one row, without its label and axis."""
    return curve(losses, width=width, height=1).splitlines()[0].partition(" ")[2]


def test_many_steps_share_a_column_as_their_mean() -> None:
    assert bin_means([4.0, 2.0, 3.0, 1.0, 9.0], 2) == [3.0, (3.0 + 1.0 + 9.0) / 3]
    assert one_row([4.0, 2.0, 3.0, 1.0], width=2) == one_row([3.0, 2.0])


def test_a_loss_that_is_not_finite_leaves_a_gap() -> None:
    assert one_row([2.0, float("nan"), 1.0]) == "█ ▁"


@pytest.mark.parametrize("losses", [[], [float("nan")], [float("inf")]])
def test_without_a_loss_nothing_is_drawn(losses: list[float]) -> None:
    assert curve(losses) == "no loss to draw\n"


def test_a_loss_that_stays_is_a_flat_line() -> None:
    assert one_row([2.0, 2.0]) == "▁▁"


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
