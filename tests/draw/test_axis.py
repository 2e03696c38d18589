"""One time axis for several timelines."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draw.samples import plain, sliced
from penstock.draw.axis import axis_of, marks, stride_of


def test_times_of_different_ticks_meet_on_one_axis() -> None:
    both = [plain(), sliced()]
    axis = axis_of(both)
    for timeline in both:
        quanta = axis.quanta(timeline, timeline.end)
        exact = [int(end) * timeline.tick / axis.quantum for end in timeline.end]
        assert quanta.tolist() == exact


def test_the_stride_divides_every_time() -> None:
    both = [plain(), sliced()]
    axis = axis_of(both)
    stride = stride_of(both, axis)
    assert stride * axis.quantum == Fraction(1, 12)
    for timeline in both:
        assert not np.any(axis.quanta(timeline, timeline.start) % stride)


@given(st.fractions(Fraction(1, 10**9), 10**9), st.integers(1, 40))
def test_marks_are_round_numbers_and_few(length: Fraction, most: int) -> None:
    found = marks(length, most)
    assert found[0] == 0
    assert len(found) <= most + 1
    assert found[-1] <= length
    if len(found) > 1:
        digits = f"{found[1].numerator * 10**20 // found[1].denominator}".rstrip("0")
        assert digits in ("1", "2", "5")
