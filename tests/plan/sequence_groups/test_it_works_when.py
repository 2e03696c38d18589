"""Section 9 of the specification of FlexSP (arXiv:2412.01523): it works when."""

from random import Random

import pytest

from loops import each_case
from penstock.errors import PlanError
from penstock.plan.sequence_groups.batch import (
    GroupedBatch,
    adaptive_groups,
    flexible_groups,
    static_groups,
)
from penstock.plan.sequence_groups.buckets import (
    equal_lengths,
    equal_width_buckets,
    error_of,
    least_error_buckets,
)
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two
from penstock.plan.sequence_groups.exact import solve_groups
from penstock.plan.sequence_groups.groups import ways_to_group
from penstock.plan.sequence_groups.microbatches import runs_as_given
from penstock.plan.sequence_groups.search import search_groups, search_one_size
from plan.sequence_groups.samples import exhaustive, long_tailed, random_cost, two_machines


def instances(
    count: int, cells: tuple[int, ...], most: int
) -> list[tuple[list[int], int, GroupCost]]:
    random = Random(15)
    found = []
    for _ in range(count):
        cell, capacity = random.choice(cells), random.randint(4, 40)
        lengths = [
            min(cell * capacity, max(1, int(random.lognormvariate(2.5, 1))))
            for _ in range(random.randint(1, most))
        ]
        found.append((lengths, cell, random_cost(random, cell, capacity)))
    return found


@pytest.mark.long
def test_9_1_flexible_is_never_slower_than_one_size() -> None:
    for lengths, cell, cost in instances(40, (4, 8, 16), 30):
        flexible, adaptive = (f(lengths, cell, cost) for f in (flexible_groups, adaptive_groups))
        assert flexible.seconds <= adaptive.seconds
        for degree in cost.exchange:
            if degree * cost.capacity >= max(lengths):
                assert adaptive.seconds <= static_groups(lengths, cell, cost, degree).seconds


@pytest.mark.long
def test_9_2_equal_lengths_have_groups_of_the_cheapest_size() -> None:
    """Sixteen equal sequences on 16 ranks, room for all: one each where exchanges cost, and any
    size is the same where they are free."""
    cost = two_machines(10**6, near=1e-4, far=1e-3)
    found = search_groups([1000] * 16, 16, cost)
    assert found is not None
    assert found.degrees == (1,) * 16
    alone = {d: search_one_size([1000] * 16, 16, cost, d) for d in cost.exchange}
    assert found.seconds == min(each.seconds for each in alone.values() if each)


@each_case(
    ("cell", "cheapest"),
    [(cell, degree) for cell in (4, 8, 16) for degree in powers_of_two(cell)],
)
@each_case("length", [1, 60, 5000])
@each_case("times", [1, 2, 3])
def test_9_2_whichever_size_is_the_cheapest(
    cell: int, cheapest: int, length: int, times: int
) -> None:
    """As many sequences for every rank, so each size of groups can share them evenly; the cheapest
    exchange has no start, and others are dearer by the token or by their start."""
    random = Random(f"{cell} {cheapest} {length} {times}")
    exchange = {
        degree: ExchangeCost(3, 0) if degree == cheapest else _dearer(random)
        for degree in powers_of_two(cell)
    }
    lengths = [length] * times * cell
    cost = GroupCost(0.01, 2, 5, exchange, capacity=10**9)
    found = search_groups(lengths, cell, cost)
    assert found is not None
    assert found.degrees == (cheapest,) * (cell // cheapest)
    assert found.seconds == pytest.approx(times * (0.01 * length**2 + 5 * length) + 5, rel=1e-12)


def _dearer(random: Random) -> ExchangeCost:
    """Than an exchange of 3 s for a token."""
    more = random.uniform(0.5, 3)
    return ExchangeCost(3 + more) if random.random() < 0.5 else ExchangeCost(3, more)


def test_9_2_the_cheapest_size_is_one_that_there_may_be() -> None:
    """Exchanges grow with a group, and sizes below one are not used, because of memory or heads."""
    whole = {degree: ExchangeCost(degree) for degree in powers_of_two(16)}
    for least in powers_of_two(16):
        allowed = {degree: cost for degree, cost in whole.items() if degree >= least}
        found = search_groups([700] * 16, 16, GroupCost(0.01, 2, 5, allowed, capacity=10**9))
        assert found is not None
        assert found.degrees == (least,) * (16 // least)


def test_9_3_the_gain_depends_on_the_network() -> None:
    """With free exchanges one group of all ranks is as good as any; with a slow network short
    sequences stay inside a machine."""
    lengths = [40_000, *[1000] * 160]
    free, slow = (two_machines(4000, 0.0, far) for far in (0.0, 5e-3))
    ratios = [
        static_groups(lengths, 16, cost, 16).seconds / flexible_groups(lengths, 16, cost).seconds
        for cost in (free, slow)
    ]
    assert ratios[0] == pytest.approx(1, rel=0.05)
    assert ratios[1] > 2.0
    machine = flexible_groups(lengths, 16, slow)
    short = [
        group.degree
        for microbatch in machine.microbatches
        for group in microbatch.groups
        if 0 not in group.members
    ]
    assert short
    assert max(short) <= 8


@pytest.mark.long
def test_9_4_every_sequence_once_and_memory_is_enough() -> None:
    for lengths, cell, cost in instances(40, (4, 8, 16), 30):
        for found in _all_ways(lengths, cell, cost):
            members = [
                number
                for microbatch in found.microbatches
                for group in microbatch.groups
                for number in group.members
            ]
            assert sorted(members) == [*range(len(lengths))]
            for microbatch in found.microbatches:
                assert sum(microbatch.degrees) <= cell
                for group in microbatch.groups:
                    tokens = sum(lengths[number] for number in group.members)
                    assert 0 < tokens <= group.degree * cost.capacity


def _all_ways(lengths: list[int], cell: int, cost: GroupCost) -> list[GroupedBatch]:
    return [
        flexible_groups(lengths, cell, cost),
        flexible_groups(lengths, cell, cost, cut=runs_as_given),
        adaptive_groups(lengths, cell, cost),
        static_groups(lengths, cell, cost, cost.smallest_degree(max(lengths))),
    ]


def test_9_5_buckets_of_least_error_beat_equal_widths() -> None:
    random = Random(5)
    for _ in range(30):
        lengths = long_tailed(random, random.randint(1, 60), 20_000)
        count = random.randint(1, 12)
        found, even = (f(lengths, count) for f in (least_error_buckets, equal_width_buckets))
        assert sorted(s for bucket in found for s in bucket) == sorted(lengths)
        assert len(found) <= count
        assert error_of(found) <= error_of(even)
    lengths = long_tailed(random, 200, 20_000)
    share = [
        error_of(f(lengths, 16)) / sum(lengths) for f in (least_error_buckets, equal_width_buckets)
    ]
    assert share[0] < 0.1 < 0.5 < share[1], share


@pytest.mark.long
def test_9_6_the_solver_finds_what_every_assignment_has() -> None:
    for lengths, cell, cost in instances(12, (4,), 5):
        found = solve_groups(lengths, cell, cost, buckets=equal_lengths(lengths, 1))
        ways = ways_to_group(cell, sorted(cost.exchange))
        right = min(exhaustive(lengths, way, cost) for way in ways)
        assert (found.seconds if found else float("inf")) == pytest.approx(right, rel=1e-9)


@pytest.mark.long
def test_9_6_the_search_is_within_5_percent_of_the_optimum() -> None:
    for lengths, cell, cost in instances(60, (8, 16), 12):
        found = search_groups(lengths, cell, cost)
        best = solve_groups(lengths, cell, cost, buckets=equal_lengths(lengths, 1))
        assert (found is None) == (best is None)
        assert found is None or best is None or found.seconds <= 1.05 * best.seconds


@pytest.mark.long
def test_9_8_a_larger_skew_has_a_larger_gain() -> None:
    gains = []
    for longest in (2000, 40_000):
        lengths = [longest, *long_tailed(Random(8), 200, 2000)]
        cost = two_machines(4000, near=1e-4, far=2e-3)
        one_size = adaptive_groups(lengths, 16, cost)
        gains.append(one_size.seconds / flexible_groups(lengths, 16, cost).seconds)
    assert gains[0] < 1.1 < 1.4 < gains[1], gains


def test_a_sequence_that_no_group_can_hold_is_refused() -> None:
    cost = two_machines(100, 0.0, 0.0)
    with pytest.raises(PlanError, match="a sequence has 1601 tokens, but the largest group, of 16"):
        flexible_groups([1601, 5], 16, cost)
    with pytest.raises(PlanError, match="needs 8 ranks, but there are 4"):
        flexible_groups([800, 5], 4, cost)
    with pytest.raises(PlanError, match="a group of 2 ranks has memory for 200"):
        static_groups([300], 16, cost, 2)
