"""How many buffers gradients take at least, where copies of the weights share all of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.arch.presets import MODELS
from penstock.core.kernel import compile_small_work
from penstock.estimate.gradient_buffers import buffers_of
from penstock.estimate.price import estimate_step
from penstock.planner.candidates import Candidates
from penstock.planner.gradient_bounds import more_gradient_bytes
from penstock.planner.problem import problem_from
from penstock.schedules import build
from penstock.transform import shard
from planner.problems import FUSED, candidates_of, problem_of, row

pytestmark = pytest.mark.long
SHARED: dict[str, Any] = {"shard": "full", "offload": "none", "mesh": "sequence=1"}


def _with_more(found: Candidates, numbers: Sequence[int]) -> list[tuple[float, float, int]]:
    """The bound of some candidates, the same with their gradient buffers, and what an estimate
    says."""
    sizes = []
    with compile_small_work():
        for number in numbers:
            layout, division = found.layout(number), found.groups[found.group[number]].division
            more = more_gradient_bytes(layout, found.pieces.of(division)(layout.slices or 1))
            needed = max(each.total for each in estimate_step(layout).memory)
            sizes.append((float(found.bytes[number]), float(found.bytes[number]) + more, needed))
    return sizes


ASKED = {
    "tied": (MODELS["llama3.2-1b"], 0.05),
    "untied": (replace(MODELS["llama3.2-1b"], tied=False), 0.05),
    "layers of three kinds": (FUSED, 0.01),
}
"""Models, and by how much of what is needed the bound of some candidate is to grow."""


@pytest.mark.parametrize("name", ASKED)
def test_buffers_for_gradients_are_bounded(name: str) -> None:
    """Without it, the bounds of a search may be half of what is needed."""
    model, gain = ASKED[name]
    found = candidates_of(problem_of(model, **SHARED))
    chunks = [found.entries(int(g)).entries[e].chunks for g, e in zip(found.group, found.entry)]
    several = np.flatnonzero(np.array([each or 1 for each in chunks]) >= 4)
    drawn = np.random.default_rng(7)
    sizes = _with_more(found, drawn.permutation(several)[:40].tolist())
    sizes += _with_more(found, drawn.permutation(len(found))[:20].tolist())
    assert all(more <= needed for _, more, needed in sizes)
    gained = [more / needed - plain / needed for plain, more, needed in sizes]
    assert max(gained) > gain
    assert min(gained) == 0


def test_a_schedule_that_runs_a_stage_at_once_needs_two() -> None:
    problem = problem_from(row(**SHARED | {"schedule": "breadth-first"}))
    found = candidates_of(problem)
    sizes = _with_more(found, range(min(len(found), 12)))
    assert sizes
    assert all(plain == more for plain, more, _ in sizes)


def test_buffers_of_a_schedule_with_gathers_of_its_own_are_not_counted() -> None:
    """It may reduce a stage more than once, with fewer of them."""
    plain = build("interleaved", devices=2, microbatches=8, chunks=4)
    assert buffers_of(plain).buffers == 4
    assert buffers_of(shard(plain, weights=1, gradients=1)).buffers == 0
