from dataclasses import replace

from penstock.check import check
from penstock.core.schedule import After
from penstock.core.shape import Shape
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import merge_backward, split_backward
from transform.pictures import draw, lanes, ops, picture
from transform.samples import braided, ganged, lending


def test_a_backward_becomes_its_two_halves_in_place() -> None:
    split = split_backward(build("1f1b", devices=2, microbatches=3))
    assert lanes(split) == picture("""
        0  F0 F1 I0 W0 F2 I1 W1 I2 W2
        1  F0 I0 W0 F1 I1 W1 F2 I2 W2
    """)


def test_an_input_gradient_stays_braided_and_its_weight_gradient_follows() -> None:
    assert lanes(split_backward(braided())) == picture("""
        0  0F0 1F0 0F1+1I0 1W0 1F1+0I0 0W0 1I1 1W1 0I1 0W1
    """)


def test_a_stage_without_weights_keeps_its_whole_backward() -> None:
    weightless = draw("0  0F0 1F0 1B0 0B0", Shape(1, 2, (1,), weightless=frozenset({1})))
    split = split_backward(weightless)
    assert lanes(split) == picture("0  0F0 1F0 1B0 0I0 0W0")
    assert check(split).proven


def test_what_came_after_a_backward_comes_after_its_weight_gradient() -> None:
    base = draw("0  0F0 0F1 0B0 0B1", Shape(1, 1, (1, 1)), after=(After(*ops("0B1 0B0")),))
    assert split_backward(base).after == (After(*ops("0I1 0W0")),)


def test_both_halves_of_a_gang_are_gangs() -> None:
    assert split_backward(ganged()).gangs == ops("0F0 1F0 1I0 1W0 0I0 0W0")


def test_a_loan_goes_with_the_input_gradient() -> None:
    assert [loan[:2] for loan in split_backward(lending()).loans] == [
        ops("0F0.1 1F0"),
        ops("0I0.1 1I0"),
    ]


def test_the_previous_stage_waits_no_longer_for_weight_gradients() -> None:
    base = build("1f1b", devices=4, microbatches=8)
    assert simulate(base).makespan == 33
    # The drain passes on after I alone: p - 1 of the last weight gradients leave the critical path.
    assert simulate(split_backward(base)).makespan == 30


def test_merging_undoes_splitting() -> None:
    for base in (build("1f1b", devices=3, microbatches=4), braided(), ganged(), lending()):
        assert merge_backward(split_backward(base)) == base


def test_a_weight_gradient_that_stands_apart_stays_apart() -> None:
    base = build("zb-h1", devices=2, microbatches=3)
    assert lanes(base) == picture("""
        0  F0 F1 I0 W0 F2 I1 W1 I2 W2
        1  F0 I0 F1 I1 W0 F2 I2 W1 W2
    """)
    assert lanes(merge_backward(base)) == picture("""
        0  F0 F1 B0 F2 B1 B2
        1  F0 I0 F1 I1 W0 F2 I2 W1 W2
    """)


def test_halves_between_which_something_else_must_happen_are_not_merged() -> None:
    base = draw("0  0F0 0F1 0I0 0W0 0I1 0W1", Shape(1, 1, (1, 1)))
    for held in (After(*ops("0W1 0I0")), After(*ops("0I1 0I0"))):
        merged = merge_backward(replace(base, after=(held,), derived={}))
        assert ops("0I0 0W0") == tuple(merged.lane(0)[2:4])
        assert check(merged).proven


def test_a_gang_is_merged_only_where_it_is_whole_on_every_device() -> None:
    apart = draw(
        """
        0  0F0 1F0 1I0 1W0 0I0 0W0
        1  0F0 1F0 1I0 0I0 1W0 0W0
        """,
        ganged().shape,
        gangs=ops("0F0 1F0 1I0 0I0 1W0 0W0"),
    )
    assert lanes(merge_backward(apart)) == lanes(apart)
