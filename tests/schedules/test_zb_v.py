from fractions import Fraction

from loops import each_case
from schedules.picture import bubble, built, chunk_units, lanes, picture, priced


def test_section_9_the_published_order() -> None:
    assert lanes(built("zb-v", p=4, m=8)) == picture("""
        0 F0 F1 F2 F3 F4 F5 F6 f0 i0 w0 f1 i1 w1 f2 i2 w2 f3 i3 w3 F7 I0 W0 f4 i4 w4 I1 W1
          f5 i5 w5 I2 W2 f6 i6 w6 I3 W3 f7 i7 w7 I4 W4 I5 W5 I6 W6 I7 W7
        1 F0 F1 F2 F3 F4 f0 F5 f1 i0 w0 f2 i1 w1 f3 i2 w2 F6 I0 W0 f4 i3 w3 F7 I1 W1 f5 i4 w4
          I2 W2 f6 i5 w5 I3 W3 f7 i6 w6 I4 i7 I5 W4 I6 W5 I7 W6 w7 W7
        2 F0 F1 F2 f0 F3 f1 F4 f2 i0 w0 f3 i1 w1 F5 I0 W0 f4 i2 w2 F6 I1 W1 f5 i3 w3 F7 I2 W2
          f6 i4 w4 I3 W3 f7 i5 w5 I4 i6 I5 i7 I6 W4 I7 W5 w6 w7 W6 W7
        3 F0 f0 F1 f1 F2 f2 F3 f3 i0 w0 F4 I0 W0 f4 i1 w1 F5 I1 W1 f5 i2 w2 F6 I2 W2 f6 i3 w3
          F7 I3 W3 f7 i4 w4 I4 i5 I5 i6 I6 i7 I7 W4 w5 w6 w7 W5 W6 W7
    """)


def test_the_model_is_folded_so_that_the_first_device_has_the_last_stage() -> None:
    schedule = built("zb-v", p=4, m=8)
    homes = [sorted({op.stage for op in schedule.lane(device)}) for device in range(4)]
    assert homes == [[0, 7], [1, 6], [2, 5], [3, 4]]


def test_section_9_no_bubble_and_the_memory_of_1f1b_on_every_device() -> None:
    timeline = priced(built("zb-v", p=4, m=8))
    assert (timeline.span, bubble(timeline)) == (Fraction(48, 2), 0)
    assert timeline.makespan == Fraction(51, 2)
    assert chunk_units(timeline.peak, 2) == [8, 8, 8, 8]


@each_case("p", range(1, 9))
def test_section_10_the_bubble_is_gone_from_2p_minus_1_microbatches_on(p: int) -> None:
    full = priced(built("zb-v", p=p, m=2 * p - 1))
    assert bubble(full) == 0
    assert full.peak == (p,) * p
    if p > 1:
        assert bubble(priced(built("zb-v", p=p, m=2 * p - 2))) > 0


@each_case("p", range(2, 7))
def test_section_6_few_microbatches_leave_a_bubble_and_less_memory_on_early_devices(p: int) -> None:
    for m in range(1, 2 * p):
        timeline = priced(built("zb-v", p=p, m=m))
        assert 2 * bubble(timeline) == 2 * (2 * p - 1 - m)
        assert chunk_units(timeline.peak, 2) == [min(m + 1 + r, 2 * m, 2 * p) for r in range(p)]


@each_case("times", [(10, 11, 8), (3, 4, 2), (2, 2, 1), (1, 3, 2), (2, 5, 3), (1, 9, 4)])
@each_case(("p", "m"), [(2, 3), (4, 8), (5, 13)])
def test_section_6_unequal_times_cost_what_the_input_gradient_is_longer(
    p: int, m: int, times: tuple[int, int, int]
) -> None:
    _, input_time, weight_time = times
    found = bubble(priced(built("zb-v", p=p, m=m), times))
    assert found == 2 * (p - 1) * Fraction(input_time - weight_time, 2)


@each_case("times", [(1, 2, 2), (1, 4, 4), (2, 4, 4), (1, 5, 4)])
@each_case(("p", "m"), [(2, 3), (4, 8)])
def test_section_6_weight_gradients_longer_than_the_mean_of_the_others_cost_more_than_that(
    p: int, m: int, times: tuple[int, int, int]
) -> None:
    F, I, W = times  # noqa: E741 - the letters of the ops
    assert 2 * W > F + I
    found = bubble(priced(built("zb-v", p=p, m=m), times))
    assert found == (p - 1) * Fraction(I - F, 2) > (p - 1) * (I - W)


def test_section_6_traffic_is_twice_that_of_one_stage_per_device() -> None:
    folded = priced(built("zb-v", p=4, m=8)).transfers
    plain = priced(built("zb-h1", p=4, m=8)).transfers
    assert len(folded.writer) == 2 * len(plain.writer) == 2 * (2 * 3 * 8)
