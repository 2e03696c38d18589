from fractions import Fraction

import pytest

from loops import each_case
from penstock.core.program import Channel
from penstock.core.schedule import Schedule
from penstock.sim.slots import stall_free_slots
from schedules.picture import built, chunk_units, lanes, picture, priced


def test_section_7_groups_of_p_microbatches_walk_through_both_stages() -> None:
    assert lanes(built("interleaved", p=4, v=2, m=8)) == picture("""
        0 F0 F1 F2 F3 f0 f1 f2 f3 F4 F5 F6 b0 F7 b1 f4 b2 f5 b3 f6 B0 f7 B1 B2 B3
          b4 b5 b6 b7 B4 B5 B6 B7
        1 F0 F1 F2 F3 f0 f1 f2 f3 F4 b0 F5 b1 F6 b2 F7 b3 f4 B0 f5 B1 f6 B2 f7 B3
          b4 b5 b6 b7 B4 B5 B6 B7
        2 F0 F1 F2 F3 f0 f1 f2 b0 f3 b1 F4 b2 F5 b3 F6 B0 F7 B1 f4 B2 f5 B3 f6 b4
          f7 b5 b6 b7 B4 B5 B6 B7
        3 F0 F1 F2 F3 f0 b0 f1 b1 f2 b2 f3 b3 F4 B0 F5 B1 F6 B2 F7 B3 f4 b4 f5 b5
          f6 b6 f7 b7 B4 B5 B6 B7
    """)


def test_section_7_a_short_last_group_walks_on_its_own() -> None:
    lane = built("interleaved", p=2, v=2, m=5, group=3).lane(0)
    forwards = [(op.mb, op.stage // 2) for op in lane if op.kind == "F"]
    assert [mb for mb, _ in forwards] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [place for _, place in forwards] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


@each_case(
    ("p", "v", "m", "group", "makespan", "bubble", "peaks"),
    [
        (4, 2, 8, 4, "57/2", "9/2", range(11, 4, -2)),
        (4, 2, 16, 4, "105/2", "9/2", range(11, 4, -2)),
        (4, 2, 16, 8, "105/2", "9/2", range(15, 8, -2)),
        (4, 2, 16, 16, "105/2", "9/2", range(23, 16, -2)),
        (8, 2, 16, 8, "117/2", "21/2", range(23, 8, -2)),
        (8, 4, 32, 8, "405/4", "21/4", range(39, 24, -2)),
        (4, 4, 16, 4, "201/4", "9/4", range(19, 12, -2)),
    ],
)
def test_section_8_time_bubble_and_memory(
    p: int, v: int, m: int, group: int, makespan: str, bubble: str, peaks: range
) -> None:
    timeline = priced(built("interleaved", p=p, v=v, m=m, group=group))
    assert timeline.makespan == Fraction(makespan)
    assert timeline.makespan - timeline.work[0] == Fraction(bubble)
    assert chunk_units(timeline.peak, v) == list(peaks)


@each_case(
    ("hop", "depth_first", "twice_the_group", "breadth_first"),
    [
        ("0", "52.5", "52.5", "52.5"),
        ("0.1", "53.9", "53.1", "53.1"),
        ("0.25", "56", "54", "54"),
        ("0.5", "59.5", "55.5", "55.5"),
        ("1", "75.5", "65", "58.5"),
    ],
)
def test_section_8_larger_groups_bear_latency_better(
    hop: str, depth_first: str, twice_the_group: str, breadth_first: str
) -> None:
    schedules = (
        built("interleaved", p=4, v=2, m=16),
        built("interleaved", p=4, v=2, m=16, group=8),
        built("breadth-first", p=4, v=2, m=16),
    )
    found = [priced(schedule, hop=Fraction(hop)).makespan for schedule in schedules]
    assert found == [Fraction(depth_first), Fraction(twice_the_group), Fraction(breadth_first)]


def test_the_default_group_is_p_or_else_the_smallest_that_fits() -> None:
    assert built("interleaved", p=4, v=2, m=8) == built("interleaved", p=4, v=2, m=8, group=4)
    assert built("interleaved", p=4, v=2, m=10) == built("interleaved", p=4, v=2, m=10, group=5)
    assert built("interleaved", p=4, v=2, m=7) == built("interleaved", p=4, v=2, m=7, group=7)


def wrapping(schedule: Schedule) -> tuple[int, int]:
    """Activations that wait on the first device and gradients that wait on the last one."""
    last = schedule.shape.devices - 1
    slots = stall_free_slots(priced(schedule))
    return slots[Channel(last, 0, "x")], slots[Channel(0, last, "g")]


@pytest.mark.parametrize("group", [4, 8, 16])
def test_section_2_4_the_way_round_needs_a_queue_and_not_one_slot(group: int) -> None:
    """A gradient's slot is counted until its reader has ended, which takes one more here."""
    waiting = group - 4 + 1
    depth_first = built("interleaved", p=4, v=2, m=16, group=group)
    assert wrapping(depth_first) == (waiting, waiting + 1)
    assert wrapping(built("breadth-first", p=4, v=2, m=group)) == (waiting, waiting)


def test_section_2_3_all_forwards_first_at_m_equal_p_is_breadth_first() -> None:
    early, late = built("interleaved", p=4, v=3, m=4), built("breadth-first", p=4, v=3, m=4)
    for device in range(4):
        for kind in "FB":
            mine, other = ([op for op in s.lane(device) if op.kind == kind] for s in (early, late))
            assert mine == other
        assert "".join(op.kind for op in late.lane(device)) == "F" * 12 + "B" * 12
    assert priced(early).makespan == priced(late).makespan
