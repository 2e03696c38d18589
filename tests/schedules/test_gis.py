"""The orders, peaks and bubbles of PipeOffload's generalised interleaved schedule (section 3)."""

from fractions import Fraction

import pytest

from loops import each_case
from penstock.schedules.generators.group_block import block_slots
from schedules.picture import built, chunk_units, lane, picture, priced


def idle(name: str, p: int, m: int, v: int, **options: int) -> Fraction:
    """Idle time of a device over the step, in ops of one stage."""
    timeline = priced(built(name, p=p, m=m, v=v, **options))
    return (timeline.makespan - timeline.work[0]) * v


def test_section_6_the_worked_order_in_groups_of_all_devices() -> None:
    schedule = built("gis", p=4, m=8, v=2)
    assert [lane(schedule, 0)] == picture("""
        0 F0 F1 F2 F3 f0 f1 f2 f3 i0 w0 F4 i1 w1 F5 i2 w2 F6 i3 w3 F7 I0 W0 f4 I1 W1 f5 I2 W2 f6
          I3 W3 f7 i4 w4 i5 w5 i6 w6 i7 w7 I4 W4 I5 W5 I6 W6 I7 W7
    """)
    assert (
        lane(schedule, 3)[:20]
        == picture("""
        3 F0 F1 F2 F3 f0 i0 w0 f1 i1 w1 f2 i2 w2 f3 i3 w3 F4 I0 W0
    """)[0]
    )
    assert idle("gis", p=4, m=8, v=2) == 6
    assert chunk_units(priced(schedule).peak, 2) == [8, 7, 6, 5]


def test_section_6_the_worked_order_in_groups_of_half_the_devices() -> None:
    schedule = built("gis-h", p=4, m=8, v=2)
    assert [lane(schedule, 0)] == picture("""
        0 F0 F1 f0 f1 F2 F3 i0 w0 f2 i1 w1 f3 I0 W0 F4 I1 W1 F5 i2 w2 f4 i3 w3 f5 I2 W2 F6 I3 W3 F7
          i4 w4 f6 i5 w5 f7 I4 W4 I5 W5 i6 w6 i7 w7 I6 W6 I7 W7
    """)
    assert idle("gis-h", p=4, m=8, v=2) == 8
    assert chunk_units(priced(schedule).peak, 2) == [6, 5, 4, 3]


def test_half_the_devices_is_a_group_too() -> None:
    for p in range(1, 7):
        assert built("gis-h", p=p, m=7, v=2) == built("gis", p=p, m=7, v=2, group=-(-p // 2))


@each_case("p", [2, 3, 4, 8])
@each_case("v", [2, 3, 4])
def test_section_3_the_warm_up_is_shorter_than_that_of_interleaved_1f1b(p: int, v: int) -> None:
    for name, forwards in (("gis", lambda r: p - r), ("interleaved", lambda r: 2 * (p - r) - 1)):
        schedule = built(name, p=p, m=3 * p, v=v)
        for r in range(p):
            kinds = "".join(op.kind for op in schedule.lane(r))
            assert len(kinds) - len(kinds.lstrip("F")) == p * (v - 1) + forwards(r)


@each_case("p", range(1, 9))
@each_case("v", range(2, 6))
def test_section_7_peak_and_bubble_of_every_group(p: int, v: int) -> None:
    for group in range(-(-p // 2), p + 1):
        schedule = built("gis", p=p, m=3 * group, v=v, group=group)
        peaks = [min(group * (v - 1) + p - r, 3 * group * v) for r in range(p)]
        assert chunk_units(priced(schedule).peak, v) == peaks
        assert idle("gis", p=p, m=3 * group, v=v, group=group) == 2 * (p - 1) + (p - group) * (
            v - 1
        )


@pytest.mark.parametrize("times", [(1, 1, 1), (3, 4, 2), (2, 2, 1)])
def test_the_paper_s_bubble_holds_for_half_of_an_even_number_of_devices(
    times: tuple[int, int, int],
) -> None:
    F, I, W = times  # noqa: E741 - the letters of the ops
    p, v, m = 4, 3, 8
    timeline = priced(built("gis-h", p=p, m=m, v=v), times)
    bubble = (p - 1) * (F + I) + (v - 1) * p // 2 * (F + I - W)
    assert timeline.makespan == timeline.work[0] + Fraction(bubble, v)


def test_the_paper_s_bubble_is_too_large_for_odd_groups_and_long_input_gradients() -> None:
    timeline = priced(built("gis", p=3, m=6, v=2, group=2), (3, 4, 2))
    assert timeline.makespan - timeline.work[0] == Fraction(2 * 7 + 1 * 3, 2)
    assert timeline.makespan - timeline.work[0] < Fraction(2 * 7 + 1 * (3 + 4 - 2), 2)


@pytest.mark.parametrize(("times", "least"), [((1, 4, 1), 3), ((4, 1, 1), 3), ((3, 4, 2), 2)])
def test_section_3_a_group_that_is_too_short_for_the_times_waits_at_every_turn(
    times: tuple[int, int, int], least: int
) -> None:
    """The least group works as long as a microbatch travels: g(F + I + W) >= p max(F, I)."""
    p, v = 4, 2
    for group in (2, 3, 4):
        assert (group >= least) == (group * sum(times) >= p * max(times[:2]))
        waits = set()
        for groups in (2, 4, 6):
            schedule = built("gis", p=p, m=group * groups, v=v, group=group)
            timeline = priced(schedule, times)
            waits.add(timeline.makespan - timeline.work[0])
        assert (len(waits) == 1) == (group >= least)


def test_section_7_the_table_of_memory_and_bubble() -> None:
    """Section 3's table at p = 8, v = 4, in activations of a microbatch and work of a stage."""
    p, v, m = 8, 4, 32
    found = {}
    for name in ("1f1b", "interleaved", "gis", "gis-h"):
        timeline = priced(built(name, p=p, m=m, v=None if name == "1f1b" else v))
        found[name] = (max(timeline.peak), (timeline.makespan - timeline.work[0]) * v)
    assert found == {
        "1f1b": (p, v * (p - 1) * 3),
        "interleaved": (p + Fraction(p - 1, v), (p - 1) * 3),
        "gis": (p, (p - 1) * 2),
        "gis-h": (Fraction(v + 1, 2 * v) * p, (p - 1) * 2 + (v - 1) * p // 2),
    }


def test_slots_do_not_collide_and_every_microbatch_one_by_one_keeps_them() -> None:
    for p in range(1, 9):
        for v in range(1, 6):
            shape = built("1f1b", p=p, m=6).shape
            shape = type(shape).even(p, 6, v)
            for slots in block_slots(shape, group=1):
                assert len({at for at, _ in slots}) == len(slots) == 3 * 6 * v
