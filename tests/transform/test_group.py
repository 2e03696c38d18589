from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.schedule import After, Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import group
from transform.pictures import draw, lanes, ops, picture
from transform.samples import SAMPLES, Sample, braided, ganged, gathered, lending, offloaded


def test_section_6_groups_of_two_are_those_of_the_paper() -> None:
    grouped = group(build("1f1b", devices=4, microbatches=4), 2)
    assert lanes(grouped) == picture("""
        0  F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7
        1  F0 F1 F2 F3 F4 F5 B0 B1 F6 F7 B2 B3 B4 B5 B6 B7
        2  F0 F1 F2 F3 B0 B1 F4 F5 B2 B3 F6 F7 B4 B5 B6 B7
        3  F0 F1 B0 B1 F2 F3 B2 B3 F4 F5 B4 B5 F6 F7 B6 B7
    """)


def test_section_6_the_last_group_may_be_short() -> None:
    grouped = group(build("1f1b", devices=4, microbatches=4), 2, microbatches=7)
    assert lanes(grouped)[2:3] == picture("2  F0 F1 F2 F3 B0 B1 F4 F5 B2 B3 F6 B4 B5 B6")


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9))
def test_grouping_the_plain_schedule_gives_the_grouped_one(p: int, m: int, size: int) -> None:
    size = min(size, m)
    base = build("1f1b", devices=p, microbatches=-(-m // size))
    direct = build("kfkb", devices=p, microbatches=m, options={"group": size})
    assert group(base, size, microbatches=m) == direct


def test_grouping_all_forwards_and_all_backwards_changes_only_the_batch() -> None:
    base = build("gpipe", devices=3, microbatches=2)
    assert group(base, 3) == build("gpipe", devices=3, microbatches=6)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_each_copy_keeps_the_order_of_the_base(sample: Sample) -> None:
    base = sample()
    grouped = group(base, 3)
    for copy in range(3):
        own = [
            [op._replace(mb=op.mb // 3) for op in lane if op.mb % 3 == copy]
            for lane in _moving_lanes(grouped)
        ]
        assert own == _moving_lanes(base)


def _moving_lanes(schedule: Schedule) -> list[list[Op]]:
    return [
        [op for op in ops if op.kind not in STAGE_KINDS] for _, _, ops in schedule.table.lanes()
    ]


def test_slices_of_a_group_go_side_by_side() -> None:
    assert lanes(group(build("seq1f1b", devices=1, microbatches=1, slices=2), 2)) == picture("""
        0  F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1
    """)


def test_a_ragged_batch_keeps_the_slices_and_shares_of_each_group() -> None:
    share = ((Fraction(1),), (Fraction(1, 4), Fraction(3, 4)))
    ragged = draw("0  0F0 0F1 0F1.1 0B1.1 0B1 0B0", Shape(1, 1, (1, 2), slice_share=share))
    shape = group(ragged, 2, microbatches=3).shape
    assert shape.slices == (1, 1, 2)
    assert shape.slice_share == (share[0], share[0], share[1])


def test_pairs_are_braided_member_by_member_and_a_missing_strand_is_left_out() -> None:
    assert lanes(group(braided(), 2)) == picture("""
        0  0F0 0F1 1F0 1F1 0F2+1B0 0F3+1B1 1F2+0B0 1F3+0B1 1B2 1B3 0B2 0B3
    """)
    assert lanes(group(braided(), 2, microbatches=3)) == picture("""
        0  0F0 0F1 1F0 1F1 0F2+1B0 1B1 1F2+0B0 0B1 1B2 0B2
    """)


def test_annotations_hold_in_every_copy() -> None:
    assert group(offloaded(), 2).after == (After(*ops("0L0 0B2")), After(*ops("0L1 0B3")))
    assert [op for op, _ in group(offloaded(), 2).shares] == list(ops("0O0 0O1 0L0 0L1"))
    assert group(ganged(), 2).gangs == ops("0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1")
    assert [loan[:2] for loan in group(lending(), 2).loans[:2]] == [
        ops("0F0.1 1F0"),
        ops("0F1.1 1F1"),
    ]


def test_what_the_copies_share_waits_for_all_of_them() -> None:
    grouped = group(gathered(), 2)
    assert lanes(grouped)[1] == ["0", "collective", "G0", "Z0"]
    assert grouped.after == tuple(
        After(*ops(text)) for text in ("0Z0 0B2", "0Z0 0B3", "0F0 0G0", "0F1 0G0")
    )
    assert group(gathered(), 2, microbatches=3).after[0] == After(*ops("0Z0 0B2"))


@pytest.mark.parametrize(
    ("hop", "makespans"),
    [
        (Fraction(0), (57, 57, 57, 57)),
        (Fraction(1, 4), (64, Fraction(117, 2), Fraction(117, 2), Fraction(117, 2))),
        (Fraction(1, 2), (71, 60, 60, 60)),
        (Fraction(1), (85, 63, 63, 63)),
        (Fraction(2), (113, 74, 69, 69)),
    ],
)
def test_section_7_groups_hide_slow_transfers(
    hop: Fraction, makespans: tuple[Fraction, ...]
) -> None:
    found = [
        simulate(
            group(build("1f1b", devices=4, microbatches=16 // k), k), UnitCost(hop=hop)
        ).makespan
        for k in (1, 2, 4, 16)
    ]
    assert tuple(found) == makespans


def test_section_7_groups_cost_activations() -> None:
    peaks = [
        simulate(group(build("1f1b", devices=4, microbatches=16 // k), k)).peak for k in (1, 2, 4)
    ]
    assert peaks == [(4, 3, 2, 1), (8, 6, 4, 2), (16, 12, 8, 4)]


@pytest.mark.parametrize(("size", "total"), [(0, None), (2, 2), (2, 5), (10**9, None)])
def test_groups_that_cannot_be_formed_are_refused(size: int, total: int | None) -> None:
    with pytest.raises(ShapeError, match=r"group|ops"):
        group(build("1f1b", devices=2, microbatches=2), size, microbatches=total)
