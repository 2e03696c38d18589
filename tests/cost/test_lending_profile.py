"""What loans would change, from ops that grow from slice to slice."""

from fractions import Fraction

import pytest

from penstock.core.ops import Op
from penstock.cost.causal import CausalCost
from penstock.cost.lending_profile import LendingProfile
from penstock.cost.model import UnitCost
from penstock.schedules import build
from penstock.sim import simulate

SIZES = {"devices": 4, "microbatches": 3, "slices": 8}
PLAIN = build("slimpipe", **SIZES)


def profile_with(attention: Fraction) -> LendingProfile:
    """Of a run whose ops took exactly what this part of attention makes of them."""
    times = CausalCost(attention=attention).durations(PLAIN)
    seconds = [float(int(ticks) * times.tick) for ticks in times.ticks]
    return LendingProfile.of(PLAIN, seconds, UnitCost())


@pytest.mark.parametrize("kind", ["F", "B"])
def test_a_lent_slice_is_what_an_op_grows_by(kind: str) -> None:
    attention = Fraction(3, 4)
    op, cost = Op(kind, 1, 0, 5), CausalCost(attention=attention)
    found = profile_with(attention).loan(op, PLAIN.shape)
    assert found == round(cost.loan(op, PLAIN.shape) * 10**9) * Fraction(1, 10**9)


@pytest.mark.parametrize("name", ["slimpipe-exchange", "slimpipe-level"])
def test_the_step_with_loans_is_predicted_from_the_one_without(name: str) -> None:
    schedule, attention = build(name, **SIZES), Fraction(1)
    predicted = simulate(schedule, profile_with(attention)).makespan
    exact = simulate(schedule, CausalCost(attention=attention)).makespan
    assert abs(predicted - exact) < len(schedule.table) * Fraction(1, 10**9)


@pytest.mark.parametrize("part", ["0", "0.5", "1"])
def test_the_part_of_attention_is_found(part: str) -> None:
    assert profile_with(Fraction(part)).attention == pytest.approx(float(part))


def test_one_slice_says_nothing_about_attention() -> None:
    profile = LendingProfile({("F", 0, 0): 1.0}, UnitCost())
    assert profile.loan(Op("F", 0, 0, 0), PLAIN.shape) == 0 == profile.attention
