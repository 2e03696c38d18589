"""V-Min and V-Half, compared with arXiv:2405.15362 and its public code."""

import pytest

from loops import each_case
from penstock.core.schedule import Schedule
from schedules.picture import bubble, built, chunk_units, lanes, picture, priced

DEVICES = range(2, 17)


def passes(schedule: Schedule, times: tuple[int, int, int] = (1, 1, 1)) -> int:
    """Idle time of the longest device, where the times are those of one of its two stages."""
    found = 2 * bubble(priced(schedule, times))
    assert found.denominator == 1
    return int(found)


def test_section_7_the_published_order_of_v_min() -> None:
    """Section 7: cost 59, bubble 11, 4 activations of a stage on every device."""
    schedule = built("v-min", p=4, m=8)
    assert lanes(schedule) == picture("""
        0 F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 F3 f2 i2 I1 w2 W1 F4 f3 i3 I2 w3 W2 F5 f4 i4 I3 w4 W3
          F6 f5 i5 I4 w5 W4 F7 f6 i6 I5 w6 W5 f7 i7 I6 w7 W6 I7 W7
        1 F0 F1 f0 f1 i0 w0 F2 I0 i1 w1 W0 f2 F3 I1 i2 w2 W1 f3 F4 I2 i3 w3 W2 f4 F5 I3 i4 w4 W3
          f5 F6 I4 i5 w5 W4 f6 F7 I5 i6 w6 W5 f7 I6 i7 w7 W6 I7 W7
        2 F0 F1 f0 f1 i0 w0 F2 I0 W0 i1 f2 w1 I1 F3 W1 i2 f3 w2 I2 F4 W2 i3 f4 w3 I3 F5 W3 i4 f5 w4
          I4 F6 W4 i5 f6 w5 I5 F7 W5 i6 f7 w6 I6 W6 i7 w7 I7 W7
        3 F0 f0 F1 f1 i0 I0 w0 W0 F2 f2 i1 I1 w1 W1 F3 f3 i2 I2 w2 W2 F4 f4 i3 I3 w3 W3 F5 f5 i4 I4
          w4 W4 F6 f6 i5 I5 w5 W5 F7 f7 i6 I6 w6 W6 i7 I7 w7 W7
    """)
    timeline = priced(schedule)
    assert (2 * timeline.span, 2 * bubble(timeline)) == (59, 11)
    assert chunk_units(timeline.peak, 2) == [4, 4, 4, 4]


def test_section_7_the_published_order_of_v_half() -> None:
    """Section 7: cost 53, bubble 5, 6 activations of a stage on every device."""
    schedule = built("v-half", p=4, m=8)
    assert lanes(schedule) == picture("""
        0 F0 F1 F2 F3 F4 f0 i0 w0 f1 i1 w1 f2 I0 i2 w2 f3 W0 F5 I1 i3 w3 f4 W1 F6 I2 i4 w4 f5 W2
          F7 I3 i5 w5 f6 i6 w6 I4 W3 W4 f7 i7 I5 w7 I6 W5 W6 I7 W7
        1 F0 F1 F2 F3 f0 f1 i0 w0 f2 i1 w1 I0 W0 F4 f3 i2 w2 I1 W1 F5 f4 i3 w3 I2 W2 F6 f5 i4 w4
          I3 F7 W3 f6 i5 w5 I4 i6 w6 f7 W4 I5 i7 I6 w7 W5 W6 I7 W7
        2 F0 F1 F2 f0 f1 f2 i0 w0 F3 i1 I0 w1 W0 f3 F4 I1 i2 w2 f4 W1 F5 I2 i3 w3 f5 W2 F6 I3 i4 w4
          f6 W3 F7 I4 i5 w5 f7 i6 I5 w6 I6 i7 w7 W4 I7 W5 W6 W7
        3 F0 f0 F1 f1 F2 f2 i0 w0 I0 W0 F3 f3 i1 w1 I1 W1 F4 f4 i2 w2 I2 W2 F5 f5 i3 w3 I3 F6 W3 f6
          i4 I4 w4 F7 W4 f7 i5 I5 i6 I6 w5 w6 i7 I7 w7 W5 W6 W7
    """)
    timeline = priced(schedule)
    assert (2 * timeline.span, 2 * bubble(timeline)) == (53, 5)
    assert chunk_units(timeline.peak, 2) == [6, 6, 6, 6]


@each_case("p", DEVICES)
def test_section_8_peaks_are_a_third_and_a_half_of_1f1b(p: int) -> None:
    """Section 8: (p + 4)//3 and (p + 2)//2 microbatches, alike on all devices up to one stage."""
    third = chunk_units(priced(built("v-min", p=p, m=2 * p)).peak, 2)
    assert max(third) == 2 * ((p + 4) // 3)
    assert max(third) - min(third) <= 1
    half = chunk_units(priced(built("v-half", p=p, m=2 * p)).peak, 2)
    assert half == [2 * ((p + 2) // 2)] * p


@pytest.mark.matrix
@each_case("p", DEVICES)
def test_section_8_bubbles_do_not_depend_on_the_number_of_microbatches(p: int) -> None:
    """Section 8: 4p - 5 (4p - 7 where 3 divides p); 3p - 7 for even p, 3p - 4 for odd p."""
    third = {passes(built("v-min", p=p, m=m)) for m in (2 * p, 2 * p + 5)}
    assert third == {4 * p - 7 if p % 3 == 0 else 4 * p - 5}
    half = {passes(built("v-half", p=p, m=m)) for m in (2 * p, 2 * p + 5)}
    assert half == {1 if p == 2 else 3 * p - 7 if p % 2 == 0 else 3 * p - 4}


@pytest.mark.long
@pytest.mark.parametrize(("times", "idle"), [((3, 4, 2), 81), ((10, 11, 8), 209)])
def test_section_8_v_half_keeps_its_pace_at_unequal_times(
    times: tuple[int, int, int], idle: int
) -> None:
    """Section 8: constant in m, where V-Min idles longer for every microbatch."""
    assert {passes(built("v-half", p=8, m=m), times) for m in (16, 24, 32)} == {idle}
    first, second, third = (passes(built("v-min", p=8, m=m), times) for m in (16, 24, 32))
    assert second - first == third - second > 0


@each_case(
    "times",
    [(2, 3, 1), (1, 3, 1), (3, 4, 2), (2, 1, 1), (3, 1, 1), (1, 1, 3), (1, 2, 3), (5, 3, 4)],
)
def test_section_3_the_condition_under_which_v_half_keeps_its_pace(
    times: tuple[int, int, int],
) -> None:
    """Section 3: W + 2I >= 2F and W + 2F >= 2I; else each microbatch adds what is missing."""
    forward, inputs, weight = times
    missing = max(0, 2 * forward - 2 * inputs - weight, 2 * inputs - 2 * forward - weight)
    idle = [passes(built("v-half", p=8, m=m), times) for m in (16, 24, 32)]
    assert [idle[1] - idle[0], idle[2] - idle[1]] == [8 * missing] * 2


@each_case(
    ("times", "added"),
    [
        ((3, 4, 2), 6),
        ((10, 11, 8), 8),
        ((2, 2, 1), 2),
        ((4, 3, 3), 4),
        ((2, 2, 3), 0),
        ((3, 4, 5), 0),
    ],
)
def test_section_3_v_min_keeps_its_pace_only_where_weight_gradients_are_longest(
    times: tuple[int, int, int], added: int
) -> None:
    """Section 3 says that any difference of the times repeats; a long W takes it up."""
    idle = [passes(built("v-min", p=8, m=m), times) for m in (16, 24, 32)]
    assert [idle[1] - idle[0], idle[2] - idle[1]] == [8 * added] * 2


def test_section_8_traffic_is_twice_that_of_1f1b() -> None:
    """Section 8: two activations and two gradients at each boundary; the turn is local."""
    folded = priced(built("v-half", p=4, m=8)).transfers
    plain = priced(built("1f1b", p=4, m=8)).transfers
    assert len(folded.writer) == 2 * len(plain.writer) == 2 * (2 * 3 * 8)
