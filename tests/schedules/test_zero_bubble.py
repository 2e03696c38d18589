"""ZB-H1 and ZB-H2; sections are those of the paper's specification."""

from loops import each_case
from schedules.picture import bubble, built, lanes, picture, priced

SIZES = {"act": 2, "stash": 1}


def test_section_9_h1_keeps_as_many_weight_gradients_back_as_there_are_devices_in_front() -> None:
    assert lanes(built("zb-h1", p=4, m=8)) == picture("""
        0 F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7
        1 F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7
        2 F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7
        3 F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7
    """)


def test_section_9_h2_warms_up_twice_as_long_and_keeps_twice_as_many_back() -> None:
    assert lanes(built("zb-h2", p=4, m=8)) == picture("""
        0 F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7
        1 F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 F7 I3 W1 I4 W2 I5 W3 I6 W4 I7 W5 W6 W7
        2 F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 F7 I5 W1 I6 W2 I7 W3 W4 W5 W6 W7
        3 F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7
    """)


def test_section_9_h1_has_a_third_of_the_bubble_in_the_memory_of_1f1b() -> None:
    timeline = priced(built("zb-h1", p=4, m=8), sizes=SIZES)
    assert (timeline.span, bubble(timeline)) == (27, 3)
    assert timeline.peak == (8, 7, 6, 5)
    assert priced(built("1f1b", p=4, m=8), sizes=SIZES).peak[0] == 8


def test_section_9_h2_has_no_bubble_in_twice_the_memory() -> None:
    timeline = priced(built("zb-h2", p=4, m=8), sizes=SIZES)
    assert (timeline.span, bubble(timeline), timeline.makespan) == (24, 0, 27)
    assert timeline.peak == (14, 12, 10, 8)


@each_case(
    ("p", "times", "h1", "h2"),
    [(4, (10, 11, 8), 39, 15), (8, (10, 11, 8), 91, 35), (8, (3, 4, 2), 35, 21)],
)
@each_case("more", [0, 5])
def test_section_10_bubbles_at_measured_times(
    p: int, times: tuple[int, int, int], h1: int, h2: int, more: int
) -> None:
    m = 2 * p - 1 + more
    assert bubble(priced(built("zb-h1", p=p, m=m), times)) == h1
    assert bubble(priced(built("zb-h2", p=p, m=m), times)) == h2


@each_case("name", ["zb-h1", "zb-h2"])
@each_case("times", [(1, 1, 1), (3, 4, 2), (10, 11, 8), (1, 3, 2), (1, 3, 3)])
def test_section_10_few_microbatches_expose_one_weight_gradient_only(
    name: str, times: tuple[int, int, int]
) -> None:
    """The first device has m(I + W) left when the first gradient is back, at pF + (p - 1)I: more
    than the formula where W is longer than F."""
    F, I, W = times  # noqa: E741 - the letters of the ops
    assert priced(built(name, p=4, m=2)).makespan == 11
    for p in range(2, 7):
        for m in range(1, p + 1):
            found = priced(built(name, p=p, m=m), times)
            assert found.span == (m + p - 1) * (F + I) + W + (m - 1) * max(0, W - F)
            assert found.span >= p * F + (p - 1) * I + m * (I + W)
            assert name == "zb-h2" or found.makespan == found.span


def test_section_10_few_microbatches_of_h2_keep_weight_gradients_back_beside_gaps() -> None:
    """Device 1 runs none before its last input gradient, and ends one op after the formula."""
    timeline = priced(built("zb-h2", p=3, m=3))
    assert (timeline.span, timeline.makespan) == (11, 12)


def test_section_10_with_as_many_microbatches_as_devices_both_have_the_same_span() -> None:
    for p in range(2, 9):
        spans = {priced(built(name, p=p, m=p)).span for name in ("zb-h1", "zb-h2")}
        assert spans == {3 * p + p - 1}


@each_case("times", [(1, 3, 2), (2, 5, 3), (1, 9, 4)])
@each_case("p", [2, 3, 5])
def test_section_10_a_weight_gradient_longer_than_a_forward_lengthens_the_span_beyond_the_formula(
    p: int, times: tuple[int, int, int]
) -> None:
    """The first device has run its p or 2p - 1 forwards at (p - 1)I or (p - 1)(I - F) before the
    first gradient is back, whatever W is: the formulas would be less."""
    F, I, W = times  # noqa: E741 - the letters of the ops
    assert F + I >= 2 * W > 2 * F
    for m in (2 * p - 1, 2 * p + 3):
        assert bubble(priced(built("zb-h1", p=p, m=m), times)) == (p - 1) * I
        assert bubble(priced(built("zb-h2", p=p, m=m), times)) == (p - 1) * (I - F)
