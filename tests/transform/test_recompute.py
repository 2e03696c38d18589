from fractions import Fraction

import pytest

from penstock.core.schedule import After
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import (
    cut_slices,
    recompute_all,
    recompute_all_but_last_slices,
    recompute_stages,
    split_backward,
)
from transform.pictures import draw, lanes, ops, picture
from transform.samples import braided, ganged, lending, offloaded

INPUT_IS_AN_EIGHTH = UnitCost(sizes={"ckpt": Fraction(1, 8)})


def test_everything_is_recomputed_right_before_its_backward() -> None:
    assert lanes(recompute_all(build("1f1b", devices=2, microbatches=3))) == picture("""
        0  N0 N1 R0 B0 N2 R1 B1 R2 B2
        1  N0 R0 B0 N1 R1 B1 N2 R2 B2
    """)


def test_a_split_backward_is_preceded_by_its_recompute() -> None:
    base = split_backward(build("1f1b", devices=2, microbatches=2))
    assert lanes(recompute_all(base)) == picture("""
        0  N0 N1 R0 I0 W0 R1 I1 W1
        1  N0 R0 I0 W0 N1 R1 I1 W1
    """)


def test_given_stages_alone_are_recomputed() -> None:
    assert lanes(recompute_stages(build("1f1b", devices=2, microbatches=2), {0})) == picture("""
        0  N0 N1 R0 B0 R1 B1
        1  F0 B0 F1 B1
    """)


def test_the_last_slices_of_each_microbatch_are_kept() -> None:
    base = build("seq1f1b", devices=1, microbatches=2, slices=3)
    assert lanes(recompute_all_but_last_slices(base, 1)) == picture("""
        0  N0 N0.1 F0.2 B0.2 N1 R0.1 B0.1 N1.1 R0 B0 F1.2 B1.2 R1.1 B1.1 R1 B1
    """)
    assert recompute_all_but_last_slices(base, 0) == recompute_all(base)
    assert recompute_all_but_last_slices(base, 3) == base


def test_a_ragged_batch_keeps_the_last_slices_of_each_of_its_microbatches() -> None:
    ragged = draw("0  0F0 0F1 0F1.1 0B1.1 0B1 0B0", Shape(1, 1, (1, 2)))
    assert lanes(recompute_all_but_last_slices(ragged, 1)) == picture("""
        0  F0 N1 F1.1 B1.1 R1 B1 B0
    """)


def test_a_recompute_stands_in_front_of_a_pair() -> None:
    assert lanes(recompute_all(braided())) == picture("""
        0  0N0 1N0 1R0 0N1+1B0 0R0 1N1+0B0 1R1 1B1 0R1 0B1
    """)


def test_recomputing_twice_changes_nothing_more() -> None:
    once = recompute_all(build("zb-v", devices=2, microbatches=4))
    assert recompute_all(once) == once


def test_what_a_backward_waits_for_its_recompute_waits_for() -> None:
    base = draw("0  0F0 0F1 0B0 0B1", Shape(1, 1, (1, 1)), after=(After(*ops("0B1 0F0")),))
    assert recompute_all(base).after == (After(*ops("0R1 0N0")),)


def test_a_gang_recomputes_together() -> None:
    assert recompute_all(ganged()).gangs == ops("0N0 1N0 1R0 1B0 0R0 0B0")


def test_an_offloaded_activation_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="0F0 cannot be recomputed: 0O0 offloads"):
        recompute_all(offloaded())


def test_recomputed_attention_is_lent_as_that_of_the_backward() -> None:
    found = [(*map(str, loan[:2]), loan.slices) for loan in recompute_all(lending()).loans]
    assert found == [("0N0.1", "1N0", 1), ("0R0.1", "1R0", 1), ("0B0.1", "1B0", 1)]


def test_where_one_end_of_a_loan_is_recomputed_it_recomputes_alone() -> None:
    found = [(*map(str, loan[:2]), loan.slices) for loan in recompute_stages(lending(), {1}).loans]
    assert found == [("0F0.1", "1N0", 1), ("0B0.1", "1B0", 1)]


@pytest.mark.parametrize("stage", [-1, 2])
def test_a_stage_that_does_not_exist_is_refused(stage: int) -> None:
    with pytest.raises(ShapeError, match=f"stage {stage} cannot"):
        recompute_stages(build("1f1b", devices=2, microbatches=2), [stage])


def test_a_negative_number_of_kept_slices_is_refused() -> None:
    with pytest.raises(ShapeError, match="cannot keep -1"):
        recompute_all_but_last_slices(build("1f1b", devices=2, microbatches=2), -1)


def test_inputs_take_the_place_of_activations_in_memory() -> None:
    base = build("1f1b", devices=4, microbatches=8)
    plain = simulate(base, INPUT_IS_AN_EIGHTH)
    saved = simulate(recompute_all(base), INPUT_IS_AN_EIGHTH)
    assert plain.peak == (4, 3, 2, 1)
    # (p - r) kept inputs and the one activation that a forward or a backward works on
    assert saved.peak == tuple(1 + Fraction(4 - r, 8) for r in range(4))
    assert saved.work == tuple(busy + 8 for busy in plain.work)


def test_keeping_the_last_slices_trades_memory_for_work() -> None:
    base = cut_slices(build("1f1b", devices=1, microbatches=2), 4)
    found = [simulate(recompute_all_but_last_slices(base, kept)) for kept in range(5)]
    assert [timeline.work[0] for timeline in found] == [8, Fraction(15, 2), 7, Fraction(13, 2), 6]
    assert [timeline.peak[0] for timeline in found] == [
        Fraction(quarters, 4) for quarters in (1, 1, 2, 3, 4)
    ]
