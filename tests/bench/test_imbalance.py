"""How unequal devices in lock-step are: the loads that the paper works out, and a round by hand."""

from fractions import Fraction

import pytest

from penstock.bench.imbalance import Imbalance, Round, imbalance, predicted_loads, rounds_of
from penstock.bench.loans import schedules_of
from penstock.bench.run import read_bench_settings
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.causal import CausalCost
from penstock.schedules import build

ALL_ATTENTION = CausalCost(attention=Fraction(1))


def ops_of(schedule: Schedule, found: Round) -> list[Op]:
    return [schedule.table.op(row) for device in sorted(found) for row in found[device]]


def test_the_largest_work_of_each_round_is_compared_with_the_mean() -> None:
    loads = [Fraction(load) for load in (1, 3, 2, 6, 4, 9)]
    rounds: list[Round] = [{0: [0], 1: [1]}, {0: [2, 3], 1: [4]}]
    found = imbalance(rounds, loads)
    assert found == Imbalance(longest=Fraction(3 + 8), mean=Fraction(2 + 6))
    assert found.ratio == Fraction(11, 8)


def test_rounds_are_those_in_which_all_devices_have_work() -> None:
    schedule = build("slimpipe", devices=2, microbatches=1, slices=3)
    found = [" ".join(map(str, ops_of(schedule, each))) for each in rounds_of(schedule)]
    assert found == ["0F0.1 1F0", "0F0.2 1F0.1", "0B0.2 1B0.1", "0B0.1 1B0"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("p", "k", "sums"),
    [(4, 8, (50, 38, 36, 32)), (8, 8, (60, 36, 36, 32)), (8, 16, (212, 148, 136, 128))],
)
def test_one_period_has_the_largest_loads_of_the_paper(
    p: int, k: int, sums: tuple[int, ...]
) -> None:
    """Section 5 of arXiv:2504.14519, in slices of keys; a device's own slice counts one half."""
    settings = {**read_bench_settings()["loans"], "ranks": p, "slices": k}
    *wanted, mean = sums
    for schedule, longest in zip(schedules_of(settings), wanted, strict=True):
        loads = predicted_loads(schedule, ALL_ATTENTION)
        rounds = rounds_of(schedule)
        for period, time in ((rounds[:k], 1), (rounds[-k:], 2)):  # forwards, then backwards
            found = imbalance(period, [load * k * k / 2 / time for load in loads])
            assert found == (longest, mean)


def test_ops_that_lend_and_help_each_other_are_in_one_round() -> None:
    for schedule in schedules_of(read_bench_settings()["loans"]):
        rounds = [set(ops_of(schedule, found)) for found in rounds_of(schedule)]
        for loan in schedule.loans:
            assert sum({loan.heavy, loan.light} <= found for found in rounds) == 1


def test_the_first_schedule_of_the_bench_lends_nothing() -> None:
    first, *others = schedules_of(read_bench_settings()["loans"])
    assert not first.loans
    assert all(schedule.loans for schedule in others)
