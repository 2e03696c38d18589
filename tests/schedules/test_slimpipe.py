from dataclasses import replace
from fractions import Fraction

import pytest

from loops import each_case
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.schedules import find
from schedules.picture import built, lane, lanes, picture, priced


def test_each_device_runs_two_slices_further_ahead_than_the_next() -> None:
    assert lanes(built("slimpipe", p=4, m=3, k=4, v=1)) == picture("""
        0 F0 F0.1 F0.2 F0.3 F1 F1.1 F1.2 F1.3 F2 F2.1 B0.3 F2.2 B0.2 F2.3 B0.1 B0
          B1.3 B1.2 B1.1 B1 B2.3 B2.2 B2.1 B2
        1 F0 F0.1 F0.2 F0.3 F1 F1.1 F1.2 F1.3 B0.3 F2 B0.2 F2.1 B0.1 F2.2 B0 F2.3
          B1.3 B1.2 B1.1 B1 B2.3 B2.2 B2.1 B2
        2 F0 F0.1 F0.2 F0.3 F1 F1.1 B0.3 F1.2 B0.2 F1.3 B0.1 F2 B0 F2.1 B1.3 F2.2 B1.2
          F2.3 B1.1 B1 B2.3 B2.2 B2.1 B2
        3 F0 F0.1 F0.2 F0.3 B0.3 F1 B0.2 F1.1 B0.1 F1.2 B0 F1.3 B1.3 F2 B1.2 F2.1 B1.1
          F2.2 B1 F2.3 B2.3 B2.2 B2.1 B2
    """)


@each_case(("k", "v"), [(4, 1), (8, 1), (4, 2), (8, 3)])
def test_section_3_devices_that_alternate_are_in_lock_step(k: int, v: int) -> None:
    """Forward unit t - r of device r has the same place in every lane, and so have backwards."""
    p, m = 4, 4
    ran = [built("slimpipe", p=p, m=m, k=k, v=v).lane(r) for r in range(p)]
    at = {
        kind: [[place for place, op in enumerate(ops) if op.kind == kind] for ops in ran]
        for kind in "FB"
    }
    warmup = k * v - 1 + 2 * (p - 1)
    for step in range(warmup, m * k * v):
        assert len({at["F"][r][step - r] for r in range(p)}) == 1
    for step in range(p - 1, m * k * v - warmup):
        assert len({at["B"][r][step - (p - 1 - r)] for r in range(p)}) == 1


def test_time_bubble_and_memory_of_the_worked_example() -> None:
    timeline = priced(built("slimpipe", p=4, m=3, k=4))
    assert timeline.makespan == Fraction("11.25")
    assert timeline.bubble_makespan == Fraction(1, 5)
    assert timeline.peak == (Fraction(5, 2), 2, Fraction(3, 2), 1)


def test_two_stages_per_device_are_left_in_the_reverse_of_the_order_they_were_entered() -> None:
    (last,) = picture("""
        3 F0 F0.1 F0.2 F0.3 f0 f0.1 f0.2 f0.3 b0.3 F1 b0.2 F1.1 b0.1 F1.2 b0 F1.3
          B0.3 f1 B0.2 f1.1 B0.1 f1.2 B0 f1.3 b1.3 b1.2 b1.1 b1 B1.3 B1.2 B1.1 B1
    """)
    assert lane(built("slimpipe", p=4, m=2, k=4, v=2), 3) == last


def test_several_cycles_of_one_sequence_go_back_last_cycle_first() -> None:
    words = lane(built("slimpipe", p=2, m=1, k=4, v=2), 1)
    (last,) = picture("1 F0 F0.1 f0 f0.1 F0.2 F0.3 f0.2 f0.3 b0.3 b0.2 B0.3 B0.2 b0.1 b0 B0.1 B0")
    assert words == last


def test_two_stages_per_device_with_eight_slices() -> None:
    timeline = priced(built("slimpipe", p=4, m=2, k=8, v=2))
    assert timeline.makespan == Fraction("6.5625")
    assert timeline.peak == tuple(map(Fraction, ("1.375", "1.25", "1.125", "1")))


@pytest.mark.parametrize(("m", "k", "percent"), [(2, 16, "4.19"), (8, 16, "1.08"), (8, 32, "0.54")])
def test_the_published_bubbles_of_eight_devices_with_five_stages(
    m: int, k: int, percent: str
) -> None:
    timeline = priced(built("slimpipe", p=8, m=m, k=k, v=5))
    assert f"{float(timeline.bubble_makespan) * 100:.2f}" == percent
    if k == 16:
        assert (timeline.peak[0], timeline.peak[-1]) == (Fraction("1.175"), 1)


def test_without_the_exchange_of_attention_work_later_slices_hold_everybody_up() -> None:
    shares = tuple(Fraction(2 * s + 1, 64) for s in range(8))
    shape = replace(Shape.even(4, 4, 1, 8), slice_share=(shares,) * 4)
    uneven = Schedule.of("uneven", shape, find("slimpipe").generate(shape, slack=2))
    assert priced(uneven).makespan == Fraction("16.078125")
    assert priced(built("slimpipe", p=4, m=4, k=8)).makespan == Fraction("13.125")


@pytest.mark.parametrize("v", [2, 3])
def test_as_many_slices_as_devices_is_the_sliced_interleaving_with_groups_of_p(v: int) -> None:
    known = built("seq1f1b-i", p=4, m=4, k=4, v=v, group=4)
    assert built("slimpipe", p=4, m=4, k=4, v=v) == known


@pytest.mark.parametrize("k", [1, 2, 4])
def test_half_the_slack_is_1f1b_over_slices(k: int) -> None:
    assert built("slimpipe", p=4, m=3, k=k, slack=1) == built("seq1f1b", p=4, m=3, k=k)


def test_more_devices_hold_less_in_all() -> None:
    peaks = [priced(built("slimpipe", p=p, m=2, k=32, v=1)).peak for p in (2, 4, 8)]
    of_the_model = [peak[-1] / p for peak, p in zip(peaks, (2, 4, 8))]
    assert of_the_model == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)]
    assert [peak[0] for peak in peaks] == [1 + Fraction(2 * (p - 1), 32) for p in (2, 4, 8)]
