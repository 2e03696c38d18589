from fractions import Fraction

from loops import each_case
from schedules.picture import built, chunk_units, lanes, picture, priced


def test_weight_gradients_run_one_unit_behind_on_the_second_device() -> None:
    assert lanes(built("interleaved-zb", p=2, v=2, m=2)) == picture("""
        0 F0 F1 f0 f1 i0 w0 i1 w1 I0 W0 I1 W1
        1 F0 F1 f0 i0 f1 i1 w0 I0 w1 I1 W0 W1
    """)


@each_case(("p", "m"), [(2, 3), (4, 8), (4, 3), (8, 16)])
def test_one_stage_per_device_is_the_schedule_it_extends(p: int, m: int) -> None:
    assert built("interleaved-zb", p=p, v=1, m=m) == built("zb-h1", p=p, m=m)


@each_case(("p", "v", "m"), [(2, 2, 4), (4, 2, 8), (4, 3, 8), (8, 2, 16)])
def test_p_minus_1_short_steps_are_left_and_memory_is_the_same_everywhere(
    p: int, v: int, m: int
) -> None:
    timeline = priced(built("interleaved-zb", p=p, v=v, m=m))
    assert timeline.makespan - 3 * m == Fraction(p - 1, v)
    assert chunk_units(timeline.peak, v) == [v * p] * p


def test_rounds_may_hold_more_than_p_microbatches() -> None:
    timeline = priced(built("interleaved-zb", p=4, v=2, m=10))
    assert timeline.makespan - 30 == Fraction(3, 2)
    assert chunk_units(timeline.peak, 2) == [9] * 4
