"""Pictures of seconds and bytes have numbers that one can read."""

from fractions import Fraction

import pytest

from penstock.cost.model import UnitCost
from penstock.draw.page.page import render
from penstock.draw.units import in_units
from penstock.draw.words import result_words
from penstock.schedules import build
from penstock.sim import Timeline, simulate

HOLDS = 13_053_722_624


def step(seconds: Fraction, size: int) -> Timeline:
    """One op of a second or less, and what it keeps."""
    cost = UnitCost(times={"F": seconds, "I": seconds, "W": seconds}, sizes={"act": Fraction(size)})
    return simulate(build("1f1b", devices=1, microbatches=1), cost)


def test_seconds_and_bytes_become_the_largest_units_of_which_there_is_one() -> None:
    (drawn,) = in_units([step(Fraction(1, 50), HOLDS)])
    assert drawn.name == "1f1b (ms, GiB)"
    assert result_words(drawn) == ["makespan 60", "bubble 0.0%", "peak 12.1572"]
    assert [span.end for span in drawn.spans()] == [20, 60]


@pytest.mark.parametrize(
    ("seconds", "size", "units"),
    [(Fraction(7), 2**20, "(s, MiB)"), (Fraction(1, 10**7), 100, "(us, KiB)")],
)
def test_small_steps_have_small_units(seconds: Fraction, size: int, units: str) -> None:
    assert in_units([step(seconds, size)])[0].name == f"1f1b {units}"


def test_all_timelines_of_a_picture_have_the_same_units() -> None:
    long, short = step(Fraction(7), HOLDS), step(Fraction(1, 1000), 2**20)
    assert [each.name for each in in_units([short, long])] == ["1f1b (s, GiB)"] * 2


def test_a_page_may_have_a_note_which_is_no_markup() -> None:
    assert '<p id="note">a &lt; b</p>' in render([step(Fraction(1), 1)], "a < b")
