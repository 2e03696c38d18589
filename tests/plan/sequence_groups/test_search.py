"""The search without a solver: bounds that hold, loops that agree, and time."""

from random import Random
from time import process_time

import numpy as np
import pytest

from penstock.core.kernel import compile_small_work
from penstock.plan.sequence_groups.assign import Assignment
from penstock.plan.sequence_groups.batch import flexible_groups
from penstock.plan.sequence_groups.buckets import equal_lengths
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two
from penstock.plan.sequence_groups.exact import solve_groups
from penstock.plan.sequence_groups.priced import PricedSequences
from penstock.plan.sequence_groups.search import GroupSearch, search_groups
from penstock.plan.sequence_groups.ways import all_ways, ways_by_bound
from plan.sequence_groups.samples import long_tailed, random_cost

MOST_SECONDS = 6.0
"""CPU time of a plan for 64 ranks and 512 sequences on a busy machine; it takes about 1."""


def drawn(numbers: Random, cell: int, most: int) -> tuple[list[int], GroupCost]:
    capacity = numbers.randint(4, 40)
    lengths = [
        min(cell * capacity, max(1, int(numbers.lognormvariate(2.5, 1.2))))
        for _ in range(numbers.randint(1, most))
    ]
    return lengths, random_cost(numbers, cell, capacity)


def test_no_assignment_is_faster_than_the_bound_of_its_way() -> None:
    numbers = Random(1)
    for _ in range(30):
        lengths, cost = drawn(numbers, 8, 12)
        priced = PricedSequences(lengths, cost)
        bounds = {way: bound for bound, way in ways_by_bound(8, priced.degrees, priced)}
        for way in all_ways(8, priced.degrees):
            assignment = Assignment(priced, way)
            if assignment.fill():
                assignment.improve()
                assert assignment.seconds >= bounds[way] * (1 - 1e-12), (lengths, way)


def test_compiled_loops_find_what_plain_ones_find() -> None:
    numbers = Random(2)
    for _ in range(10):
        lengths, cost = drawn(numbers, 8, 6)
        plain = search_groups(lengths, 8, cost)
        with compile_small_work():
            assert search_groups(lengths, 8, cost) == plain


def test_members_and_times_stay_what_they_are_while_they_change() -> None:
    numbers = Random(3)
    for _ in range(20):
        lengths, cost = drawn(numbers, 8, 20)
        priced = PricedSequences(lengths, cost)
        assignment = Assignment(priced, (4, 2, 1, 1))
        if not assignment.fill():
            continue
        before = assignment.seconds
        assignment.improve()
        assert assignment.seconds <= before
        assert sorted(np.concatenate(assignment.members)) == [*range(len(lengths))]
        assert assignment.grouped.seconds == pytest.approx(assignment.seconds, rel=1e-12)


@pytest.mark.parametrize("cell", [pytest.param(32), pytest.param(64, marks=pytest.mark.matrix)])
def test_section_9_6_also_on_many_ranks_within_5_percent_of_the_optimum(cell: int) -> None:
    numbers = Random(cell)
    for _ in range(12):
        lengths, cost = drawn(numbers, cell, 12)
        found = search_groups(lengths, cell, cost)
        best = solve_groups(lengths, cell, cost, buckets=equal_lengths(lengths, 1))
        assert (found is None) == (best is None)
        assert found is None or best is None or found.seconds <= 1.05 * best.seconds


def test_climbing_from_way_to_way_comes_near_to_looking_at_all() -> None:
    numbers = Random(4)
    for _ in range(12):
        lengths, cost = drawn(numbers, 32, 60)
        priced = PricedSequences(lengths, cost)
        climbing, looking = (GroupSearch(priced, 32, priced.degrees) for _ in range(2))
        climbing.one_size()
        climbing.climb()
        looking.by_bounds()
        one, other = climbing.best(), looking.best()
        assert (one is None) == (other is None)
        assert one is None or other is None or one.seconds <= 1.05 * other.seconds


@pytest.mark.parametrize("cell", [24, 96])
def test_no_way_has_more_ranks_than_the_cell(cell: int) -> None:
    """Also where the whole is not a power of two."""
    numbers = Random(cell)
    for _ in range(8):
        sizes = sorted({*powers_of_two(cell), cell})
        exchange = {size: ExchangeCost(numbers.uniform(0, 2)) for size in sizes}
        lengths = long_tailed(numbers, 30, 40 * cell)
        found = search_groups(lengths, cell, GroupCost(1e-3, 1, 1, exchange, 200 * 100 // cell))
        assert found is None or sum(found.degrees) <= cell


def large_cell() -> tuple[list[int], int, GroupCost]:
    """Documents like those of Wikipedia on 64 ranks of eight machines."""
    exchange = {
        degree: ExchangeCost(0.0 if degree == 1 else 1e-4 if degree <= 8 else 1e-3)
        for degree in powers_of_two(64)
    }
    return long_tailed(Random(64), 512, 65_536), 64, GroupCost(1e-7, 1e-3, 0.1, exchange, 2048)


@pytest.mark.long
def test_section_7_a_large_batch_is_planned_within_a_step() -> None:
    lengths, cell, cost = large_cell()
    flexible_groups(lengths[:32], cell, cost)  # which loads the compiled loops
    began = process_time()
    found = flexible_groups(lengths, cell, cost)
    assert process_time() - began < MOST_SECONDS
    assert sum(len(group.members) for mb in found.microbatches for group in mb.groups) == 512
