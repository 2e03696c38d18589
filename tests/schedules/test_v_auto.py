"""The search over V-shaped blocks, compared with arXiv:2405.15362 and its public code."""

from fractions import Fraction

import numpy as np
import pytest

from clock import within
from loops import each_case
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.schedules import build, find
from penstock.schedules.generators.v_blocks import block_peaks, v_blocks
from schedules.picture import bubble, built, chunk_units, lane, picture, priced

Times = tuple[int, int, int]

PUBLISHED = {
    4: {4: 11, 5: 8, 6: 5, 7: 3, 8: 0},
    6: {6: 17, 7: 14, 8: 11, 9: 8, 10: 5, 11: 3, 12: 0},
    8: {8: 23, 10: 17, 16: 0},
}
"""Devices -> activations of a stage -> bubble (section 5)."""


def searched(
    name: str, p: int, m: int, times: Times = (1, 1, 1), *, hop: int = 0, **options: Fraction
) -> Schedule:
    """A searched schedule for these times of F, I and W."""
    prices = {kind: Fraction(time) for kind, time in zip("FIW", times)}
    prices["hop"] = Fraction(hop)
    return build(name, devices=p, microbatches=m, options=options, prices=prices)


def passes(schedule: Schedule, times: Times = (1, 1, 1), *, hop: int = 0) -> Fraction:
    """Idle time of the longest device, where the times are those of one of its two stages."""
    return 2 * bubble(priced(schedule, times, hop=hop))


def closed_form(p: int, alive: int) -> int:
    """Section 5."""
    return 3 * p - 1 - 3 * alive + max(3 * p, p - 1 + 2 * (1 + (alive + 1) // 2))


@pytest.mark.long
@pytest.mark.parametrize("p", PUBLISHED)
def test_section_5_the_published_bubbles_under_a_limit(p: int) -> None:
    for alive, idle in PUBLISHED[p].items():
        schedule = searched("v-auto", p, 2 * p, limit=Fraction(alive, 2))
        assert passes(schedule) == idle == closed_form(p, alive)


@pytest.mark.matrix
@each_case("p", range(1, 9))
def test_section_8_the_closed_form_holds_for_every_limit(p: int) -> None:
    """Section 5, from the least that a V needs to the memory of 1F1B; the peak is the limit."""
    for alive in range(2 * ((p + 4) // 3), 2 * p + 1):
        schedule = searched("v-auto", p, 2 * p + 1, limit=Fraction(alive, 2))
        timeline = priced(schedule)
        assert 2 * bubble(timeline) == closed_form(p, alive)
        assert max(chunk_units(timeline.peak, 2)) <= alive
        assert closed_form(p, alive) >= 6 * p - 1 - 3 * alive


@each_case("alive", [12, 13, 21, 24, 31, 32])
def test_section_8_the_closed_form_holds_on_16_devices(alive: int) -> None:
    schedule = searched("v-auto", 16, 32, limit=Fraction(alive, 2))
    assert passes(schedule) == closed_form(16, alive)


def test_section_7_the_published_lane_without_bubble() -> None:
    """Section 7: limit 8 activations of a stage, cost 48, bubble 0, peak 8; device 3."""
    schedule = searched("v-auto", 4, 8, limit=Fraction(4))
    assert [lane(schedule, 3)] == picture("""
        3 F0 f0 F1 f1 F2 f2 F3 f3 i0 I0 w0 W0 F4 f4 i1 I1 w1 W1 F5 f5 i2 I2 w2 W2 F6 f6 i3 I3 w3 W3
          F7 f7 i4 I4 i5 I5 i6 I6 i7 I7 w4 W4 w5 W5 w6 W6 w7 W7
    """)
    timeline = priced(schedule)
    assert (2 * timeline.span, max(chunk_units(timeline.peak, 2))) == (48, 8)


@each_case("p", range(1, 9))
def test_section_8_v_zb_has_no_bubble_in_the_memory_of_1f1b(p: int) -> None:
    """All devices hold the same, in activations of a stage."""
    for m in (2 * p, 3 * p + 1):
        timeline = priced(searched("v-zb", p, m))
        assert bubble(timeline) == 0
        assert chunk_units(timeline.peak, 2) == [2 * p] * p


@each_case("p", range(9, 17))
def test_section_8_v_zb_has_the_memory_of_1f1b_on_many_devices(p: int) -> None:
    timeline = priced(searched("v-zb", p, 2 * p))
    assert bubble(timeline) == 0
    assert chunk_units(timeline.peak, 2) == [2 * p] * p


@each_case("times", [(3, 4, 2), (10, 11, 8), (2, 3, 1), (1, 3, 1), (1, 2, 3)])
def test_section_3_the_bubble_of_v_zb_does_not_grow_with_the_batch(times: Times) -> None:
    """Section 3."""
    assert len({passes(searched("v-zb", 6, m, times), times) for m in (12, 18, 30)}) == 1


@pytest.mark.long
def test_section_5_there_is_a_cliff_just_above_half_of_the_memory_of_1f1b() -> None:
    """Section 5: from there on no block has a bubble that repeats."""
    times = (3, 4, 2)
    curve = {
        alive: [
            passes(searched("v-auto", 8, m, times, limit=Fraction(alive, 2)), times)
            for m in (16, 24)
        ]
        for alive in (8, 9, 10, 11)
    }
    assert [late > early for early, late in curve.values()] == [True, True, False, False]
    assert curve[9][1] > 2 * curve[10][1]


@pytest.mark.matrix
@each_case("times", [(1, 1, 1), (3, 4, 2), (10, 11, 8), (2, 2, 1), (1, 2, 3)])
@each_case("p", [3, 4, 5])
def test_the_search_is_not_slower_than_fixed_blocks_in_the_same_memory(
    p: int, times: Times
) -> None:
    for name in ("v-min", "v-half", "zb-v"):
        fixed = priced(built(name, p=p, m=2 * p), times)
        found = priced(searched("v-auto", p, 2 * p, times, limit=max(fixed.peak)), times)
        assert found.span <= fixed.span
        assert max(found.peak) <= max(fixed.peak)


def test_latency_is_part_of_the_price() -> None:
    times = (10, 12, 7)
    told = passes(searched("v-zb", 4, 8, times, hop=3), times, hop=3)
    untold = passes(searched("v-zb", 4, 8, times), times, hop=3)
    assert told <= untold


@pytest.mark.long
def test_a_limit_is_in_the_unit_of_activations() -> None:
    small = searched("v-auto", 4, 8, limit=Fraction(3))
    prices = {"act": Fraction(2), "stash": Fraction(2)}
    large = build(
        "v-auto", devices=4, microbatches=8, options={"limit": Fraction(6)}, prices=prices
    )
    assert large == small


def test_small_stashes_leave_room_for_a_faster_order() -> None:
    sizes = {"act": 2, "stash": 1}
    prices = {name: Fraction(size) for name, size in sizes.items()}
    request = {"devices": 4, "microbatches": 8, "options": {"limit": Fraction(6)}}
    schedule = build("v-auto", **request, prices=prices)  # type: ignore[arg-type]
    timeline = priced(schedule, sizes=sizes)
    assert max(timeline.peak) <= 6
    assert 2 * bubble(timeline) <= closed_form(4, 6)


@each_case(("p", "m"), [(4, 1), (4, 3), (4, 5), (6, 2), (6, 7)])
def test_few_microbatches_are_searched_too(p: int, m: int) -> None:
    limit = Fraction(min(m, (p + 4) // 3))
    timeline = priced(searched("v-auto", p, m, limit=limit))
    assert max(timeline.peak) <= limit
    assert timeline.span <= priced(built("v-min", p=p, m=m)).span


def test_with_room_for_the_whole_batch_weight_gradients_wait() -> None:
    """The public code, which keeps some of them early, takes 42 and 137."""
    assert priced(searched("v-zb", 2, 2, (6, 8, 4)), (6, 8, 4)).span == 41
    times = (20, 24, 14)
    assert priced(searched("v-zb", 2, 2, times, hop=1), times, hop=1).span == 135


def test_a_limit_below_every_block_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"limit is at least min\(m, \(p \+ 4\)//3\)"):
        find("v-auto").case(8, 16, options={"limit": 3})


def test_what_no_search_could_hold_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"blocks of 65 devices"):
        searched("v-zb", 65, 4)
    digits = {"F": Fraction(1, 10**9), "I": Fraction(1, 3**20)}
    with pytest.raises(ShapeError, match=r"no common unit"):
        build("v-zb", devices=2, microbatches=2, prices=digits)


@each_case("p", [1, 2, 7, 12, 17, 24])
def test_the_least_memory_is_that_of_the_shortest_lifespans(p: int) -> None:
    assert block_peaks(v_blocks(p)).min() == 2 * ((p + 4) // 3)


def test_blocks_are_all_there_are_without_a_collision() -> None:
    """Those of the public code: 127 of 4 devices and 796 of 16 need no more than 1F1B."""
    for p, fit in ((2, 23), (3, 73), (4, 127), (8, 348), (16, 796)):
        starts = v_blocks(p)
        assert (block_peaks(starts) <= 2 * p).sum() == fit
        assert (np.sort(starts % 6, axis=-1) == np.arange(6)).all()
        assert len(np.unique(starts, axis=0)) == len(starts)


def test_a_search_over_16_devices_and_64_microbatches_takes_seconds() -> None:
    """The public code takes 142 s; the limit of processor time is 5 s."""
    searched("v-zb", 4, 8)  # loads and compiles the loops
    with within(5):
        schedule = searched("v-auto", 16, 64, (12, 14, 9), limit=Fraction(10))
    assert max(priced(schedule, (12, 14, 9)).peak) <= 10
