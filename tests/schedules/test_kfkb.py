from dataclasses import replace
from fractions import Fraction
from itertools import zip_longest

import pytest

from loops import each_case
from penstock.cost.model import UnitCost
from penstock.sim import simulate
from schedules.picture import built, lane, lanes, picture, priced


def test_section_6_forwards_and_backwards_take_turns_in_pairs() -> None:
    assert lanes(built("kfkb", p=4, m=8, group=2)) == picture("""
        0 F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7
        1 F0 F1 F2 F3 F4 F5 B0 B1 F6 F7 B2 B3 B4 B5 B6 B7
        2 F0 F1 F2 F3 B0 B1 F4 F5 B2 B3 F6 F7 B4 B5 B6 B7
        3 F0 F1 B0 B1 F2 F3 B2 B3 F4 F5 B4 B5 F6 F7 B6 B7
    """)


def test_section_6_the_last_group_may_be_short() -> None:
    (third,) = picture("2 F0 F1 F2 F3 B0 B1 F4 F5 B2 B3 F6 B4 B5 B6")
    assert lane(built("kfkb", p=4, m=7, group=2), 2) == third


@pytest.mark.parametrize("group", [2, 3, 4])
def test_section_2_it_is_the_lock_step_merge_of_independent_orders(group: int) -> None:
    m = 4 * group
    merged = built("kfkb", p=4, m=m, group=group)
    alone = built("1f1b", p=4, m=m // group)
    for device in range(4):
        members = [
            [op._replace(mb=op.mb * group + member) for op in alone.lane(device)]
            for member in range(group)
        ]
        in_step = [op for ops in zip_longest(*members) for op in ops]
        assert merged.lane(device) == in_step


def test_section_1_groups_of_one_and_of_everything_are_the_known_schedules() -> None:
    assert built("kfkb", p=4, m=6, group=1) == built("1f1b", p=4, m=6)
    assert built("kfkb", p=4, m=6, group=6) == built("gpipe", p=4, m=6)


QUARTER, HALF = Fraction(1, 4), Fraction(1, 2)


@each_case(
    ("p", "m", "hop", "makespans"),
    [
        (4, 16, 0, (57, 57, 57, 57)),
        (4, 16, QUARTER, (64, Fraction(117, 2), Fraction(117, 2), Fraction(117, 2))),
        (4, 16, HALF, (71, 60, 60, 60)),
        (4, 16, 1, (85, 63, 63, 63)),
        (4, 16, 2, (113, 74, 69, 69)),
        (8, 32, HALF, (151, 124, 124, 124)),
        (8, 32, 2, (253, 158, 145, 145)),
    ],
)
def test_section_7_larger_groups_hide_longer_transfers(
    p: int, m: int, hop: Fraction, makespans: tuple[Fraction, ...]
) -> None:
    groups = (1, 2, 4, m)
    found = [priced(built("kfkb", p=p, m=m, group=group), hop=hop).makespan for group in groups]
    assert found == list(makespans)


@each_case("group", [1, 2, 3])
@each_case("hop", [1, 2, 4])
def test_section_3_in_the_long_run_only_what_exceeds_the_rest_of_the_group_is_paid(
    group: int, hop: int
) -> None:
    p, period = 4, 4 * group
    runs = [priced(built("kfkb", p=p, m=times * period, group=group), hop=hop) for times in (8, 9)]
    per_microbatch = (runs[1].makespan - runs[0].makespan) / period
    exposed = max(0, 2 * hop - (group - 1) * 3)
    assert per_microbatch == 3 + Fraction(p - 1, p * group) * exposed


def test_section_3_a_hidden_transfer_costs_its_latency_once_each_way() -> None:
    hop = Fraction(3, 2)
    assert priced(built("kfkb", p=4, m=16, group=2), hop=hop).makespan == 19 * 3 + 2 * 3 * hop


@pytest.mark.parametrize(
    ("group", "waiting", "queueing"), [(1, 115, 116), (2, 74, 96), (4, 59, 92)]
)
def test_section_8_a_group_hides_latency_but_not_a_link_that_is_busier_than_the_devices(
    group: int, waiting: int, queueing: int
) -> None:
    """Transfers of 4 between devices that work for 3: latencies overlap, members queue."""
    schedule = built("kfkb", p=2, m=16, group=group)
    assert priced(schedule, hop=4).makespan == waiting
    wired = replace(schedule, shape=replace(schedule.shape, boundary_bytes=(4,)), derived={})
    assert simulate(wired, UnitCost(per_byte=Fraction(1))).makespan == queueing > 16 * 4


@pytest.mark.parametrize(
    ("group", "peaks"), [(1, (4, 3, 2, 1)), (2, (8, 6, 4, 2)), (4, (16, 12, 8, 4))]
)
def test_section_7_memory_grows_with_the_group(group: int, peaks: tuple[int, ...]) -> None:
    assert priced(built("kfkb", p=4, m=16, group=group)).peak == peaks
