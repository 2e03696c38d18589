"""Sections 2 to 7 and 10 of the specification of FlexSP (arXiv:2412.01523), beside its examples."""

from random import Random

import pytest

from penstock.plan.sequence_groups.batch import adaptive_groups, flexible_groups
from penstock.plan.sequence_groups.buckets import (
    USUAL_BUCKETS,
    buckets_within,
    error_of,
    least_error_buckets,
)
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost
from penstock.plan.sequence_groups.exact import GroupProgram, solve_groups
from penstock.plan.sequence_groups.microbatches import fewest_microbatches, sorted_runs
from penstock.plan.sequence_groups.planner import GroupPlanner
from penstock.plan.sequence_groups.search import search_groups
from plan.sequence_groups.samples import long_tailed, random_cost, two_machines, worked_example


def test_section_2_candidates_are_all_groups_that_stand_at_multiples_of_their_size() -> None:
    exchange = {1: ExchangeCost(), 2: ExchangeCost()}
    program = GroupProgram([(1,)], 2, GroupCost(1, 1, 1, exchange, 4), 10.0)
    assert sorted(program.degrees) == [1, 1, 2]


def test_section_3_seconds_and_memory_of_a_group() -> None:
    """(pair sum(s^2) + token sum(s)) / d + fixed, and exchange sum(s) / d, which one rank has not;
    the smallest size is the power of two from s / capacity on."""
    exchange = {1: ExchangeCost(), 2: ExchangeCost(5, 7), 4: ExchangeCost(11, 13)}
    cost = GroupCost(pair=2, token=3, fixed=17, exchange=exchange, capacity=10)
    assert cost.seconds([4, 6], 1) == 2 * 52 + 3 * 10 + 17
    assert cost.seconds([4, 6], 4) == (2 * 52 + 3 * 10) / 4 + 17 + 11 * 10 / 4 + 13
    assert [cost.smallest_degree(length) for length in (1, 10, 11, 20, 21, 40)] == [
        1, 1, 2, 2, 4, 4
    ]  # fmt: skip


def test_section_4_a_solver_whose_time_is_over_gives_what_was_found_without() -> None:
    lengths = long_tailed(Random(4), 30, 4000)
    cost = two_machines(4000, 1e-4, 1e-3)
    found = solve_groups(lengths, 16, cost, limit=1e-6)
    without = search_groups(lengths, 16, cost)
    assert found is not None
    assert without is not None
    assert found.seconds <= without.seconds


def test_section_4_no_sequence_is_in_a_group_that_is_too_small_for_it() -> None:
    numbers = Random(6)
    for _ in range(5):
        lengths = long_tailed(numbers, 40, 8000)
        cost = two_machines(1000, 1e-4, 1e-3)
        for microbatch in flexible_groups(lengths, 16, cost).microbatches:
            for group in microbatch.groups:
                longest = max(lengths[number] for number in group.members)
                assert group.degree >= cost.smallest_degree(longest)


def test_section_5_buckets_are_added_until_their_error_fits() -> None:
    """Padding takes at most half of what is left of the memory; else every length is its own."""
    lengths = long_tailed(Random(5), 90, 20_000)
    usual, tokens = least_error_buckets(lengths, USUAL_BUCKETS), sum(lengths)
    roomy = buckets_within(lengths, tokens + 2 * error_of(usual))
    assert roomy == usual
    tight = buckets_within(lengths, tokens + 2 * error_of(usual) - 1)
    assert len(tight) == 2 * USUAL_BUCKETS
    assert 2 * error_of(tight) <= 2 * error_of(usual) - 1
    assert error_of(buckets_within(lengths, tokens)) == 0


def least_largest(tokens: list[int], count: int) -> int:
    """DP[k][i] = min over j of max(DP[j][i - 1], tokens of j + 1 .. k), as the section has it."""
    sums = [sum(tokens[:end]) for end in range(len(tokens) + 1)]
    before = sums
    for parts in range(2, count + 1):
        before = [
            min(
                (max(before[j], sums[k] - sums[j]) for j in range(parts - 1, k)),
                default=10**9,
            )
            for k in range(len(sums))
        ]
    return before[-1]


def test_section_6_the_largest_microbatch_is_as_small_as_the_recurrence_says() -> None:
    numbers = Random(6)
    for _ in range(40):
        lengths = long_tailed(numbers, numbers.randint(1, 30), 5000)
        count = numbers.randint(1, len(lengths))
        runs = sorted_runs(lengths, count)
        assert len(runs) == count
        assert [lengths[n] for run in runs for n in run] == sorted(lengths, reverse=True)
        largest = max(sum(lengths[number] for number in run) for run in runs)
        assert largest == least_largest(sorted(lengths, reverse=True), count)


def test_section_6_five_numbers_of_microbatches_are_tried_and_the_best_is_kept() -> None:
    """With a large cost of each microbatch it is the fewest, without one it may be more."""
    lengths = long_tailed(Random(8), 120, 20_000)
    base = two_machines(3000, 1e-4, 1e-3)
    counts = {}
    for fixed in (0.0, 1e3):
        cost = GroupCost(base.pair, base.token, fixed, base.exchange, base.capacity)
        counts[fixed] = len(flexible_groups(lengths, 16, cost).microbatches)
    fewest = fewest_microbatches(lengths, 16 * base.capacity)
    assert counts[1e3] == fewest
    assert fewest < counts[0.0] <= fewest + 4


def test_section_10_lengths_that_repeat_are_not_planned_again() -> None:
    """Whatever their order: groups have the sequences that are as long."""
    planner = GroupPlanner(8, worked_example())
    first = planner.plan([9, 4, 4, 4, 4])
    again = planner.plan([4, 4, 9, 4, 4])
    assert again.batch.seconds == first.batch.seconds == 310.25
    assert again.seconds < first.seconds
    (long,) = [
        group.members
        for microbatch in again.batch.microbatches
        for group in microbatch.groups
        if 2 in group.members
    ]
    assert long == (2,)


@pytest.mark.long
@pytest.mark.parametrize("cell", [4, 8])
def test_section_10_a_plan_does_not_depend_on_the_order_of_the_batch(cell: int) -> None:
    numbers = Random(cell)
    for _ in range(10):
        lengths = [numbers.randint(1, 40) for _ in range(12)]
        cost = random_cost(numbers, cell, 20)
        mixed = numbers.sample(lengths, len(lengths))
        for grouped in (flexible_groups, adaptive_groups):
            assert grouped(lengths, cell, cost).seconds == pytest.approx(
                grouped(mixed, cell, cost).seconds, rel=1e-12
            )
