from fractions import Fraction

import pytest

from penstock.core.schedule import After
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import cut_slices, weigh_slices
from transform.pictures import draw, lanes, ops, picture
from transform.samples import braided, gathered, lending, offloaded


def test_forwards_ascend_and_backwards_descend_in_place() -> None:
    assert lanes(cut_slices(build("1f1b", devices=2, microbatches=2), 3)) == picture("""
        0  F0 F0.1 F0.2 F1   F1.1 F1.2 B0.2 B0.1 B0   B1.2 B1.1 B1
        1  F0 F0.1 F0.2 B0.2 B0.1 B0   F1   F1.1 F1.2 B1.2 B1.1 B1
    """)


def test_braided_ops_are_cut_in_lock_step() -> None:
    assert lanes(cut_slices(braided(), 2)) == picture("""
        0  0F0 0F0.1 1F0 1F0.1 0F1+1B0.1 0F1.1+1B0 1F1+0B0.1 1F1.1+0B0 1B1.1 1B1 0B1.1 0B1
    """)


def test_offloads_follow_the_forwards_and_loads_the_backwards() -> None:
    cut = cut_slices(offloaded(), 2)
    assert lanes(cut)[1] == ["0", "copy", "O0", "O0.1", "L0.1", "L0"]
    assert cut.after == (After(*ops("0L0.1 0B1")),)
    assert cut.shares == tuple((op, Fraction(1, 2)) for op in ops("0O0 0O0.1 0L0.1 0L0"))


def test_ops_of_a_whole_stage_are_not_cut() -> None:
    cut = cut_slices(gathered(), 2)
    assert lanes(cut)[1] == ["0", "collective", "G0", "Z0"]
    assert cut.after == (After(*ops("0Z0 0B1")), After(*ops("0F0 0G0")))


def test_cutting_again_cuts_more_finely() -> None:
    base = build("zb-h1", devices=3, microbatches=4)
    assert cut_slices(cut_slices(base, 2), 3) == cut_slices(base, 6)
    assert cut_slices(base, 1) == base


def test_ragged_microbatches_stay_ragged() -> None:
    ragged = draw("0  0F0 0F1 0F1.1 0B1.1 0B1 0B0", Shape(1, 1, (1, 2)))
    cut = cut_slices(ragged, 2)
    assert cut.shape.slices == (2, 4)
    assert lanes(cut) == picture("""
        0  F0 F0.1 F1 F1.1 F1.2 F1.3 B1.3 B1.2 B1.1 B1 B0.1 B0
    """)


def test_one_sequence_cut_is_all_forward_then_all_backward_over_slices() -> None:
    base = build("gpipe", devices=4, microbatches=1)
    assert cut_slices(base, 8) == build("terapipe", devices=4, microbatches=1, slices=8)


def test_slices_shorten_the_fill_but_not_the_memory() -> None:
    base = build("gpipe", devices=4, microbatches=2)
    cut = simulate(cut_slices(base, 4))
    assert simulate(base).makespan == (2 + 3) * 3
    assert cut.makespan == (2 + Fraction(3, 4)) * 3
    assert cut.peak == simulate(base).peak == (2, 2, 2, 2)


def test_shares_of_work_multiply() -> None:
    shares = [Fraction(1, 4), Fraction(3, 4)]
    once = cut_slices(build("1f1b", devices=1, microbatches=2), 2, shares=shares)
    assert once.shape.slice_share == ((Fraction(1, 4), Fraction(3, 4)),) * 2
    twice = cut_slices(once, 2, shares=shares).shape.slice_share
    assert twice == ((Fraction(1, 16), Fraction(3, 16), Fraction(3, 16), Fraction(9, 16)),) * 2
    assert cut_slices(once, 2).shape.slice_share[0] == (
        *[Fraction(1, 8)] * 2,
        *[Fraction(3, 8)] * 2,
    )


def test_a_loan_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match=r"0F0\.1 lends attention work to 1F0"):
        cut_slices(lending(), 2)


@pytest.mark.parametrize("count", [0, -1, 2.0, 10**9])
def test_an_impossible_number_of_slices_is_refused(count: int) -> None:
    with pytest.raises(ShapeError, match=r"slices|ops"):
        cut_slices(build("1f1b", devices=2, microbatches=2), count)


@pytest.mark.parametrize("shares", [[Fraction(1, 2)], [Fraction(1, 2)] * 3, [0, 1]])
def test_shares_that_do_not_divide_the_work_are_refused(shares: list[Fraction]) -> None:
    with pytest.raises(ShapeError, match="shares"):
        cut_slices(build("1f1b", devices=2, microbatches=2), 2, shares=shares)


def test_an_op_outside_the_shape_is_refused_by_name() -> None:
    stray = draw("0  0F0 0F7 0B0", Shape(1, 1, (1,)))
    with pytest.raises(ShapeError, match="0F7 is outside"):
        cut_slices(stray, 2)


def test_a_pair_that_does_not_stand_together_is_refused_by_name() -> None:
    apart = draw("0  0F0 0F1 0B0 0B1", Shape(1, 1, (1, 1)), pairs=(ops("0F0 0B0"),))
    with pytest.raises(ShapeError, match="pair 0F0 0B0"):
        cut_slices(apart, 2)


def test_weights_of_slices_need_one_share_per_slice() -> None:
    base = build("seq1f1b", devices=2, microbatches=2, slices=2)
    half = (Fraction(1, 2),) * 2
    assert simulate(weigh_slices(base, [half, half])).makespan == simulate(base).makespan
    with pytest.raises(ShapeError, match="slice_share"):
        weigh_slices(base, [half])
    with pytest.raises(ShapeError, match="no work"):
        weigh_slices(base, [half, (Fraction(1), Fraction(0))])


def test_a_microbatch_may_weigh_more_than_another() -> None:
    base = build("seq1f1b", devices=1, microbatches=2, slices=2)
    half, whole = (Fraction(1, 2),) * 2, (Fraction(1),) * 2
    assert simulate(weigh_slices(base, [half, whole])).work == (3 + 6,)
