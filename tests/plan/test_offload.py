from fractions import Fraction

import pytest

from penstock.arch.presets import model
from penstock.cost.hardware import Hardware
from penstock.cost.transformer import TransformerCost
from penstock.errors import PlanError
from penstock.plan.offload import (
    OffloadChoice,
    choices,
    fastest_choice,
    offload_ratios,
    resident,
)
from penstock.schedules import build
from penstock.sim import simulate

TERA, GIGA = 10**12, 10**9
SLOW_LINK = Hardware(400 * TERA, 400 * TERA, 300 * TERA, 3000 * GIGA, 8 * GIGA, 400 * GIGA)
LENGTH = 2**16


def test_the_test_vector_of_section_6() -> None:
    ratios = offload_ratios([Fraction(size) for size in (4, 3, 2, 2)], Fraction(2))
    assert ratios == (Fraction(1, 2), Fraction(2, 3), 1, 0)
    assert [size * ratio for size, ratio in zip((4, 3, 2, 2), ratios)] == [2, 2, 2, 0]


def test_the_memory_recursion_of_section_6() -> None:
    sizes = [Fraction(size) for size in (4, 3, 2, 2)]
    assert resident(sizes, [Fraction(0)] * 4) == (4, 7, 9, 11)
    assert resident(sizes, offload_ratios(sizes, Fraction(2))) == (4, 5, 5, 5)
    assert resident(sizes, [Fraction(1)] * 4) == (4, 3, 2, 2)


def test_section_6_what_is_held_when_all_slices_have_gone_forward() -> None:
    """What the ratios leave of every slice but the last, and all of the last."""
    sizes = [Fraction(size) for size in (4, 3, 2, 2)]
    ratios = offload_ratios(sizes, Fraction(2))
    left = [(1 - ratio) * size for ratio, size in zip(ratios, sizes)]
    assert resident(sizes, ratios)[-1] == sum(left[:-1]) + sizes[-1] == 5


def test_shares_do_not_fall_along_a_sequence_whose_slices_shrink() -> None:
    sizes = [Fraction(size, 100) for size in (1059, 821, 640, 520, 430, 370, 320, 287)]
    ratios = offload_ratios(sizes, Fraction(43, 10))[:-1]
    assert list(ratios) == sorted(ratios)
    assert ratios[0] == Fraction(430, 1059)
    assert ratios[-1] == 1


def found(**ranges: list[int]) -> list[OffloadChoice]:
    every = {"stages": [1, 2, 4], "slices": [4, 8, 16, 32], **ranges}
    return list(choices("sppo", model("llama3-8b"), SLOW_LINK, LENGTH, **every))


def test_copies_hide_behind_compute_and_lower_the_peak() -> None:
    (choice,) = found(stages=[4], slices=[8])
    plain = build("terapipe", devices=4, microbatches=1, slices=8)
    cost = TransformerCost.of(plain.shape, model("llama3-8b"), SLOW_LINK, choice.lengths)
    without = simulate(plain, cost)
    assert choice.time == without.makespan
    assert choice.peak < max(without.peak)
    assert 0 < choice.ratios[0] <= choice.ratios[-2] <= 1
    assert choice.ratios[-1] == 0


def test_more_slices_shrink_the_bubble_and_more_stages_the_step() -> None:
    times = {(choice.stages, len(choice.lengths)): choice.time for choice in found()}
    assert times[4, 32] < times[4, 8] < times[4, 4]
    assert times[4, 8] < times[2, 8] < times[1, 8]


def test_the_fastest_that_fits_is_chosen() -> None:
    every = found()
    fastest = fastest_choice(every, 10**15)
    assert fastest.time == min(choice.time for choice in every)
    tight = min(choice.peak for choice in every)
    assert fastest_choice(every, tight).peak == tight
    with pytest.raises(PlanError, match="stays within") as refusal:
        fastest_choice(every, tight - 1)
    assert f"{tight:,}" in refusal.value.hint


def test_slices_that_are_too_short_or_too_long_are_left_out() -> None:
    assert found(slices=[2, 64]) == []
    with pytest.raises(PlanError, match="none of 0") as refusal:
        fastest_choice([], 1)
    assert "2,048" in refusal.value.hint
