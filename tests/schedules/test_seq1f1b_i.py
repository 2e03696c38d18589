from fractions import Fraction

import pytest

from loops import each_case
from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import find
from schedules.picture import built, lane, picture, priced


def test_the_last_device_of_the_released_order() -> None:
    (start,) = picture("3 F0 F0.1 F1 F1.1 f0 f0.1 b0.1 f1 b0 f1.1 b1.1 F2")
    assert lane(built("seq1f1b-i", p=4, m=8, k=2, v=2, group=4), 3)[:13] == start


def test_the_published_picture_runs_16_14_12_and_10_forwards_before_the_first_backward() -> None:
    schedule = built("seq1f1b-i", p=4, m=8, k=2, v=2, group=8)
    kinds = ["".join(op.kind for op in schedule.lane(device)) for device in range(4)]
    assert [lane.index("B") for lane in kinds] == [16, 14, 12, 10]
    (start,) = picture("""
        0 F0 F0.1 F1 F1.1 F2 F2.1 F3 F3.1 f0 f0.1 f1 f1.1 f2 f2.1 f3 f3.1 b0.1
    """)
    assert lane(schedule, 0)[:18] == start


@each_case(
    ("p", "m", "k", "v", "group", "makespan", "peaks"),
    [
        (4, 8, 2, 2, 4, "26.25", ["3", "2.5", "2", "1.5"]),
        (4, 8, 2, 2, 8, "26.25", ["4", "3.5", "3", "2.5"]),
        (4, 8, 8, 2, 8, "24.5625", ["1.375", "1.25", "1.125", "1"]),
        (4, 8, 1, 2, 4, "28.5", ["5.5", "4.5", "3.5", "2.5"]),
    ],
)
def test_time_and_memory(
    p: int, m: int, k: int, v: int, group: int, makespan: str, peaks: list[str]
) -> None:
    timeline = priced(built("seq1f1b-i", p=p, m=m, k=k, v=v, group=group))
    assert timeline.makespan == Fraction(makespan)
    assert timeline.peak == tuple(map(Fraction, peaks))


def test_eight_devices() -> None:
    timeline = priced(built("seq1f1b-i", p=8, m=16, k=4, v=2, group=8))
    assert timeline.makespan == Fraction("50.625")
    assert (timeline.peak[0], timeline.peak[-1]) == (Fraction("3.25"), Fraction("1.5"))


@pytest.mark.parametrize(("p", "m", "v", "group"), [(4, 8, 2, 4), (4, 8, 2, 8), (2, 6, 3, 3)])
def test_one_slice_is_interleaved_1f1b(p: int, m: int, v: int, group: int) -> None:
    sliced = built("seq1f1b-i", p=p, m=m, k=1, v=v, group=group)
    assert sliced == built("interleaved", p=p, m=m, v=v, group=group)


def test_the_default_group_is_the_smallest_legal_one() -> None:
    for p, m, k, group in ((4, 8, 2, 4), (4, 8, 3, 6), (4, 8, 8, 8), (5, 9, 2, 6)):
        default = built("seq1f1b-i", p=p, m=m, k=k, v=2)
        assert default == built("seq1f1b-i", p=p, m=m, k=k, v=2, group=group)


@pytest.mark.parametrize(("k", "m"), [(3, 4), (8, 4)])
def test_a_group_that_tears_a_microbatch_apart_is_refused_because_it_would_deadlock(
    k: int, m: int
) -> None:
    with pytest.raises(ShapeError, match="no microbatch is divided between groups") as refusal:
        built("seq1f1b-i", p=4, m=m, k=k, v=2, group=4)
    assert "leave -o group out" in refusal.value.hint
    shape = Shape.even(4, m, 2, k)
    torn = Schedule.of("torn", shape, find("seq1f1b-i").generate(shape, group=4))
    assert not check(torn).proven
