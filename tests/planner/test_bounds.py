"""No plan is faster or leaner than its bounds say, and the bounds say something."""

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.arch.config import ModelConfig, with_layers
from penstock.arch.presets import model
from penstock.core.kernel import compile_small_work
from penstock.estimate.price import estimate_step
from penstock.planner.candidates import Candidates
from penstock.planner.copy_bounds import copy_bounds
from penstock.planner.problem import PlanProblem, problem_from
from planner.problems import FUSED, candidates_of, every, problem_of, row
from profiling.made_up import profile

pytestmark = pytest.mark.long

SAMPLED = 80


MODELS: dict[str, ModelConfig | None] = {
    "layers alike": None,
    "layers of three kinds": FUSED,
    "tokens left out": model("subllm-1.3b"),
    "windows in some layers": model("gemma3-1b"),
    "experts": with_layers(model("qwen3-30b-a3b"), 16),
}


NEAR = {"tokens left out": 0.7}
"""Where more of the candidates wait for copies, which these bounds do not know."""


@pytest.fixture(scope="module", params=MODELS)
def sample(request: pytest.FixtureRequest) -> list[tuple[float, float]]:
    """Bounds of time and memory over what an estimate says, for candidates of all sorts."""
    candidates, found = every(MODELS[request.param]), []
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


def test_bounds_are_near(sample: list[tuple[float, float]], request: pytest.FixtureRequest) -> None:
    seconds, sizes = zip(*sample)
    name = request.node.callspec.params["sample"]
    assert np.median(seconds) > NEAR.get(name, 0.8)
    assert np.median(sizes) > 0.6


def test_all_sorts_of_candidates_are_there() -> None:
    candidates = every()
    groups = candidates.groups
    assert {group.variant.shard for group in groups} == {"none", "optimizer", "full"}
    assert {group.variant.recompute for group in groups} == {"none", "stages"}
    assert {group.variant.offload for group in groups} == {"none", "all"}
    assert {group.division.rows for group in groups} == {1, 2, 4}
    entries = [entry for at in range(len(groups)) for entry in candidates.entries(at).entries]
    assert {bool(entry.layers) for entry in entries} == {True, False}
    works = {entry.work.spec.name: entry.work for entry in entries}.values()
    assert len(works) > 20
    assert {work.split for work in works} == {work.braided for work in works} == {True, False}


COPIED: dict[str, Any] = {"offload": "all"}
LENT: dict[str, Any] = {"mesh": "tensor=1,sequence=1", "rows": 1, "offload": "none"}


def _ratios(found: Candidates, numbers: Sequence[int]) -> list[float]:
    """The closer bounds of some candidates over what an estimate says."""
    ratios = []
    with compile_small_work():
        for number in numbers:
            layout, plan = found.layout(number), estimate_step(found.layout(number))
            division = found.groups[found.group[number]].division
            bound = float(found.seconds[number])
            if layout.offload != "none":
                piece = found.pieces.of(division)(layout.slices or 1)
                copied = copy_bounds(layout, piece)
                assert copied.host <= plan.host
                bound = max(bound, copied.seconds)
            ratios.append(bound / plan.seconds)
    return ratios


def test_activations_on_the_way_to_a_host_may_be_few_beside_a_shared_vocabulary() -> None:
    """Ops of the vocabulary pass time while a copy goes out."""
    given = {"offload": "all", "vocabulary": "yes", "schedule": "eager-1f1b", "shard": "none"}
    found = candidates_of(problem_from(row(**given, mesh="tensor=1,sequence=1,pipeline=2")))
    for number in range(len(found)):
        needed = estimate_step(found.layout(number)).memory
        assert found.bytes[number] <= max(each.total for each in needed)


def _problem(name: str, given: dict[str, Any]) -> PlanProblem:
    config = MODELS[name]
    return problem_of(config, **given) if config else problem_from(row(**given))


@pytest.mark.parametrize("name", MODELS)
def test_copies_are_bounded_by_their_lane(name: str) -> None:
    found = candidates_of(_problem(name, COPIED))
    numbers = np.random.default_rng(5).permutation(len(found))[:30].tolist()
    ratios = _ratios(found, numbers)
    assert max(ratios) <= 1 + 1e-9
    assert np.median(ratios) > 0.8


@pytest.mark.parametrize("name", [*MODELS][:2])
def test_lent_attention_is_bounded(name: str) -> None:
    found = candidates_of(_problem(name, LENT))
    lends = [found.entries(int(g)).entries[e].work.lends for g, e in zip(found.group, found.entry)]
    numbers = np.random.default_rng(6).permutation(np.flatnonzero(lends))[:30].tolist()
    ratios = _ratios(found, numbers)
    assert max(ratios) <= 1 + 1e-9
    assert np.median(ratios) > 0.75


SPREAD: dict[str, dict[str, Any]] = {
    "tensor ranks": {"mesh": "tensor=2,sequence=1"},
    "tensor ranks that hold all tokens": {
        "mesh": "tensor=2,sequence=1",
        "sequence_parallel_norms": "no",
    },
    "ranks that share tokens": {"mesh": "tensor=1,sequence=2,ring=1"},
    "a ring": {"mesh": "tensor=1,sequence=2,ring=2"},
    "one rank": {"mesh": "tensor=1,sequence=1"},
}


def _spread(found: Candidates) -> NDArray[np.int64]:
    """Candidates in which all devices have a part of the vocabulary."""
    works = [found.entries(int(g)).entries[e].work for g, e in zip(found.group, found.entry)]
    added = np.array([group.variant.vocabulary for group in found.groups])[found.group]
    return np.flatnonzero(added | np.array([work.shards for work in works]))


@pytest.mark.parametrize("name", SPREAD)
def test_a_vocabulary_on_all_devices_is_bounded(name: str) -> None:
    found = candidates_of(problem_from(row(**SPREAD[name])))
    numbers = np.random.default_rng(7).permutation(_spread(found))[:24].tolist()
    ratios = _ratios(found, numbers)
    assert max(ratios) <= 1 + 1e-9
    assert np.median(ratios) > 0.65
    with compile_small_work():
        for number in numbers:
            needed = estimate_step(found.layout(number)).memory
            assert found.bytes[number] <= max(each.total for each in needed)


def test_orders_with_passes_over_the_vocabulary_are_tried_and_bounded() -> None:
    """Also those that are made for times, as they are for equal ones."""
    found = candidates_of(problem_from(row(mesh="sequence=1", shard="none", offload="none")))
    works = [found.entries(int(g)).entries[e].work for g, e in zip(found.group, found.entry)]
    for own in {work.spec.name: work for work in works if work.shards}.values():
        there = np.array([work is own for work in works])
        on_cells = np.array([group.division.in_cell > 1 for group in found.groups])[found.group]
        assert {*on_cells[there].tolist()} == {True, False}
        numbers = np.random.default_rng(8).permutation(np.flatnonzero(there))[:8].tolist()
        assert max(_ratios(found, numbers)) <= 1 + 1e-9
    assert any(work.spec.priced for work in works)
    assert all(work.shards for work in works if work.spec.priced)


def test_pairs_of_attention_that_is_not_fused_do_not_wait_on_hosts() -> None:
    """Copies are charged for what a run moves."""
    given = {"attention": "unfused", "offload": "all", "schedule": "interleaved", "tokens": 2048}
    found = candidates_of(problem_from(row(**given, batch_tokens=16 * 2048, rows=1)))
    numbers = np.random.default_rng(9).permutation(len(found))[:12].tolist()
    assert max(_ratios(found, numbers)) <= 1 + 1e-9
    with compile_small_work():
        hosts = [estimate_step(found.layout(number)).host for number in numbers]
    assert (found.host[numbers] <= hosts).all()
    assert found.host[numbers].max() > 0


def test_bounds_count_what_a_profile_has_measured_beside_a_step(tmp_path: Path) -> None:
    """Ranks that compute on a host have no driver, and their allocator leaves no gaps."""
    path = tmp_path / "host.json"
    path.write_text(dumps(profile()))
    found = candidates_of(
        problem_from(row(model="tiny", tokens=512, batch_tokens=2048, profile=str(path)))
    )
    numbers = np.random.default_rng(10).permutation(len(found))[:SAMPLED]
    with compile_small_work():
        needed = [
            max(each.total for each in estimate_step(found.layout(number)).memory)
            for number in numbers.tolist()
        ]
    assert (found.bytes[numbers] <= needed).all()
    assert np.median(found.bytes[numbers] / needed) > 0.6
    assert not found.lacks.any()
