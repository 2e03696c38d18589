"""No plan is faster or leaner than its bounds say, and the bounds say something."""

import numpy as np
import pytest

from penstock.core.kernel import compile_small_work
from penstock.estimate.price import estimate_step
from planner.problems import every

pytestmark = pytest.mark.long

SAMPLED = 60


@pytest.fixture(scope="module")
def sample() -> list[tuple[float, float]]:
    """Bounds of time and memory over what an estimate says, for candidates of all sorts."""
    candidates, found = every(), []
    numbers = np.random.default_rng(3).permutation(len(candidates))[:SAMPLED].tolist()
    with compile_small_work():
        for number in numbers:
            plan = estimate_step(candidates.layout(number))
            needed = max(each.total for each in plan.memory)
            seconds, size = candidates.seconds[number], candidates.bytes[number]
            found.append((float(seconds) / plan.seconds, float(size) / needed))
    return found


def test_bounds_hold(sample: list[tuple[float, float]]) -> None:
    assert max(seconds for seconds, _ in sample) <= 1 + 1e-9
    assert max(size for _, size in sample) <= 1


def test_bounds_are_near(sample: list[tuple[float, float]]) -> None:
    seconds, sizes = zip(*sample)
    assert np.median(seconds) > 0.8
    assert np.median(sizes) > 0.6


def test_all_sorts_of_candidates_are_there() -> None:
    candidates = every()
    groups = candidates.groups
    assert {group.variant.shard for group in groups} == {"none", "optimizer", "full"}
    assert {group.variant.recompute for group in groups} == {"none", "stages"}
    assert {group.variant.offload for group in groups} == {"none", "all"}
    assert {group.division.rows for group in groups} == {1, 2, 4}
    entries = [entry for group in groups for entry in group.entries.entries]
    assert {bool(entry.layers) for entry in entries} == {True, False}
    works = {entry.work.spec.name: entry.work for entry in entries}.values()
    assert len(works) > 20
    assert {work.split for work in works} == {work.braided for work in works} == {True, False}
