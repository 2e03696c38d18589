from fractions import Fraction

import pytest

from loops import each_case
from schedules.picture import built, lane, picture, priced


def test_the_last_device_of_the_published_picture() -> None:
    ops = lane(built("seq1f1b-zb", p=4, m=8, k=2), 3)
    start, end = picture("""
        3 F0 F0.1 I0.1 F1 I0 F1.1 I1.1 F2 I1 W0.1 F2.1 I2.1 W0 F3 I2 W1.1
        3 F7.1 I7.1 W5 I7 W6.1 W6 W7.1 W7
    """)
    assert ops[: len(start)] == start
    assert ops[1 - len(end) :] == end[1:]


@pytest.mark.parametrize(("k", "makespan"), [(1, "27"), (2, "25.5"), (4, "24.75")])
def test_slices_and_weight_gradients_shrink_the_bubble_together(k: int, makespan: str) -> None:
    timeline = priced(built("seq1f1b-zb", p=4, m=8, k=k))
    assert timeline.makespan == Fraction(makespan)
    assert timeline.peak == (Fraction(3 + k, k),) * 4


@each_case(("p", "m"), [(1, 2), (2, 3), (4, 8), (4, 2)])
def test_one_slice_is_zero_bubble_over_microbatches(p: int, m: int) -> None:
    assert built("seq1f1b-zb", p=p, m=m, k=1) == built("zb-h1", p=p, m=m)


def test_a_single_sequence_cannot_hide_the_weight_gradients_it_keeps_back() -> None:
    timeline = priced(built("seq1f1b-zb", p=4, m=1, k=4))
    assert timeline.makespan == 3 + Fraction(3 * 2, 4)
