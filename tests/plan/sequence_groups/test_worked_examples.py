"""Section 8 of the specification of FlexSP (arXiv:2412.01523): worked examples."""

from math import inf

import pytest

from penstock.plan.sequence_groups.buckets import error_of, least_error_buckets
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two
from penstock.plan.sequence_groups.exact import SOLVERS, solve_groups
from penstock.plan.sequence_groups.groups import ways_to_group
from penstock.plan.sequence_groups.microbatches import sorted_runs
from penstock.plan.sequence_groups.search import search_groups, search_one_size
from plan.sequence_groups.samples import exhaustive, worked_example

LENGTHS = [9, 4, 4, 4, 4]


def test_section_8_groups_of_one_size() -> None:
    cost = worked_example()
    found = {d: search_one_size(LENGTHS, 8, cost, d) for d in powers_of_two(8)}
    assert found[1] is found[2] is None
    assert found[8] is not None
    assert found[8].seconds == 663.125
    assert found[4] is not None
    assert found[4].seconds == 434.25
    assert {len(group.members) for group in found[4].groups} == {2, 3}
    assert 0 in min(found[4].groups, key=lambda group: len(group.members)).members


def test_section_8_the_optimum_is_found_without_a_solver() -> None:
    found = search_groups(LENGTHS, 8, worked_example())
    assert found is not None
    assert found.seconds == 310.25
    assert found.degrees in ((4, 1, 1, 1, 1), (4, 2, 2), (4, 2, 1, 1))
    assert round(434.25 / found.seconds, 2) == 1.40


def test_section_8_three_ways_to_divide_the_ranks_are_as_fast_and_all_others_slower() -> None:
    """In tenths of a second, as exact numbers."""
    ways = ways_to_group(8, powers_of_two(8))
    seconds = {way: exhaustive(LENGTHS, way, worked_example()) for way in ways}
    best = {way for way, each in seconds.items() if each == 310.25}
    assert best == {(4, 2, 2), (4, 2, 1, 1), (4, 1, 1, 1, 1)}
    rest = {way: each for way, each in seconds.items() if way not in best and each < inf}
    assert rest == {(8,): 663.125, (4, 4): 434.25}


@pytest.mark.parametrize("solver", SOLVERS)
def test_section_8_no_solver_finds_better_groups(solver: str) -> None:
    found = solve_groups(LENGTHS, 8, worked_example(), solver=solver)
    assert found is not None
    assert found.seconds == 310.25


def test_section_8_buckets() -> None:
    found = least_error_buckets([1, 2, 3, 10, 11, 12, 30], 3)
    assert found == [(1, 2, 3), (10, 11, 12), (30,)]
    assert error_of(found) == 6


def test_section_8_microbatches() -> None:
    lengths = [16, 4, 4, 2, 2, 2, 2] * 2
    runs = [[lengths[number] for number in run] for run in sorted_runs(lengths, 3)]
    assert runs == [[16], [16, 4, 4], [4, 4, *[2] * 8]]
    assert max(map(sum, runs)) == 24


def test_section_8_the_figure_of_the_paper() -> None:
    """One sequence of 100K and four of 48K on 64 GPUs: two groups of 32 need 4 units of time, one
    of 32 and four of 8 need 3."""
    pair = 14.08 / 2496  # 100K on 32 GPUs take 3 units, 48K take 1 on 32 and 3 on 8
    exchange = {8: ExchangeCost((24 - 2304 * pair) / 48), 32: ExchangeCost(0.96 - 100 * pair)}
    cost, lengths = GroupCost(pair, 0, 0, exchange, capacity=6), [100, 48, 48, 48, 48]
    alone = search_one_size(lengths, 64, cost, 32)
    mixed = search_groups(lengths, 64, cost)
    assert alone is not None
    assert mixed is not None
    assert alone.seconds == pytest.approx(4, rel=1e-12)
    assert mixed.degrees == (32, 8, 8, 8, 8)
    assert mixed.seconds == pytest.approx(3, rel=1e-12)


def test_section_4_ways_to_divide_the_ranks() -> None:
    counts = [sum(1 for _ in ways_to_group(cell, powers_of_two(cell))) for cell in (8, 16, 32, 64)]
    assert counts == [10, 36, 202, 1828]


def test_section_2_groups_stand_at_multiples_of_their_size() -> None:
    found = search_groups([9, 4, 4, 4, 4], 8, worked_example())
    assert found is not None
    assert [span.start % len(span) for span in found.spans] == [0] * len(found.groups)
