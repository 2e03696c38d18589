"""Batches and costs to plan with."""

from collections.abc import Sequence
from itertools import product
from random import Random

from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two


def worked_example() -> GroupCost:
    """Section 8, in tenths: time = (sum(0.1 s^2 + 4 s) + gamma sum(s)) / d + 2."""
    gamma = {1: 0, 2: 5, 4: 80, 8: 160}
    return GroupCost(1, 40, 20, {d: ExchangeCost(each) for d, each in gamma.items()}, capacity=4)


def random_cost(random: Random, cell: int, capacity: int) -> GroupCost:
    """Larger groups pay more for their exchange."""
    exchange, token = {}, 0.0
    for degree in powers_of_two(cell):
        exchange[degree] = ExchangeCost(token, random.uniform(0, 10) if degree > 1 else 0.0)
        token += random.uniform(0, 30)
    return GroupCost(
        random.random(), random.uniform(0, 20), random.uniform(0, 50), exchange, capacity
    )


def long_tailed(random: Random, count: int, longest: int) -> list[int]:
    """Lengths like those of documents: median 347, mean about 1000, few very long ones."""
    return [min(longest, max(1, int(random.lognormvariate(5.85, 1.45)))) for _ in range(count)]


def two_machines(capacity: int, near: float, far: float, machine: int = 8) -> GroupCost:
    """16 ranks, exchanges inside a machine of some ranks and between machines."""
    exchange = {
        degree: ExchangeCost(0.0 if degree == 1 else near if degree <= machine else far)
        for degree in powers_of_two(16)
    }
    return GroupCost(1e-7, 1e-3, 0.1, exchange, capacity)


def exhaustive(lengths: Sequence[int], way: Sequence[int], cost: GroupCost) -> float:
    """Seconds of the best of all assignments to groups of these sizes; infinite where none has
    room."""
    best = float("inf")
    for chosen in product(range(len(way)), repeat=len(lengths)):
        groups = [[s for s, at in zip(lengths, chosen) if at == p] for p in range(len(way))]
        if all(sum(each) <= d * cost.capacity for each, d in zip(groups, way)):
            best = min(best, max(cost.seconds(e, d) for e, d in zip(groups, way) if e))
    return best
