"""Vocabulary passes per slice: arXiv:2411.05288 over the slices of arXiv:2406.03488."""

from fractions import Fraction

import pytest

from loops import each_case
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.schedules import build
from penstock.sim import simulate
from schedules.picture import built, lanes, picture


def sliced(p: int, m: int, k: int, algorithm: int) -> Schedule:
    return built("vocab-seq1f1b", p=p, m=m, k=k, algorithm=algorithm)


def test_passes_go_forward_through_the_slices_and_backwards_return_from_the_last() -> None:
    assert lanes(sliced(p=2, m=2, k=2, algorithm=2)) == picture("""
        0 E0 E0.1 F0 E1 F0.1 S0 E1.1 F1 T0 S0.1 F1.1 T0.1 S1 B0.1 T1 S1.1 B0 B1.1 B1
          D0.1 D0 D1.1 D1 T1.1
        1 E0 E0.1 E1 F0 S0 E1.1 F0.1 T0 S0.1 F1 B0.1 T0.1 S1 F1.1 B0 T1 S1.1 B1.1 B1
          D0.1 D0 D1.1 D1 T1.1
    """)


@pytest.mark.parametrize("algorithm", [1, 2])
def test_one_slice_is_the_schedule_of_whole_microbatches(algorithm: int) -> None:
    assert sliced(4, 8, 1, algorithm) == built("vocab-1f1b", p=4, m=8, algorithm=algorithm)


@each_case("algorithm", [1, 2])
@each_case("k", [2, 3, 4, 8])
@each_case("p", [2, 3, 4, 8])
def test_the_bubble_is_that_of_seq1f1b_and_a_wait_costs_a_slice(
    p: int, k: int, algorithm: int
) -> None:
    times = {"S": Fraction(2, 3), "T": Fraction(5, 4)}
    for m in (-(-p // k), p):
        timeline = simulate(sliced(p, m, k, algorithm), UnitCost(times=times))
        assert timeline.makespan == m * (3 + sum(times.values())) + Fraction(p - 1, k) * 3
        live = [min(p - 1 - r + k + 3 - algorithm, m * k) for r in range(p)]
        assert timeline.peak == tuple(Fraction(count, k) for count in live)


def test_the_order_follows_the_prices() -> None:
    def with_backward(time: int) -> Schedule:
        prices = {"I": Fraction(time), "W": Fraction(0)}
        return build("vocab-seq1f1b", devices=4, microbatches=4, slices=2, prices=prices)

    assert with_backward(1) != with_backward(4)
