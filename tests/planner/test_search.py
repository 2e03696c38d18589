"""The search finds what simulating everything finds."""

from typing import Any

import numpy as np
import pytest

from penstock.core.kernel import compile_small_work
from penstock.errors import PenstockError, ShapeError
from penstock.estimate.price import estimate_step
from penstock.planner import search
from penstock.planner.advice import advise, lacks
from penstock.planner.candidates import Candidates, all_candidates
from penstock.planner.nothing_found import nothing_found
from penstock.planner.problem import problem_from
from penstock.planner.processes import PlanProcesses
from penstock.planner.search import WORTH, SearchResult, first_by_promise, search_plans
from penstock.planner.simulations import Simulations
from planner.problems import candidates_of, every, row, tight

pytestmark = pytest.mark.long

FEW = {"mesh": "tensor=1,sequence=1", "rows": 1, "schedule": "1f1b", "vocabulary": False}


def _search(found: Candidates, wanted: int = 1, most: int = 200) -> SearchResult:
    return search_plans(found, wanted, most, lambda count, best: None, _simulations(found))


def _simulations(found: Candidates) -> Simulations:
    return Simulations(PlanProcesses(found.problem))


def test_the_best_is_the_best_of_all() -> None:
    found = candidates_of(problem_from(row(**FEW)))
    with compile_small_work():
        each = [estimate_step(found.layout(number)) for number in range(len(found))]
    fastest = min(plan.seconds for plan in each if plan.fits)
    best = _search(found)
    assert best.plans[0].seconds <= fastest / (1 - WORTH)
    assert best.simulated < len(found)
    assert best.open == 0


def test_plans_are_of_different_kinds_the_fastest_first() -> None:
    plans = _search(every(), wanted=4).plans
    kinds = [
        (plan.layout.mesh.tensor, plan.layout.mesh.sequence, plan.layout.pipeline) for plan in plans
    ]
    assert len({*kinds}) == len(kinds) == 4
    assert [plan.seconds for plan in plans] == sorted(plan.seconds for plan in plans)
    assert all(plan.fits for plan in plans)


@pytest.mark.parametrize("count", [1, 50, 51, 700])
def test_the_candidates_looked_at_first_are_the_first_of_all(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = every()
    numbers = np.flatnonzero(found.lacks == 0)
    longer = np.random.default_rng(count).uniform(1, 1.2, int(found.sort.max()) + 1)
    monkeypatch.setattr(search, "LOOKED_AHEAD", len(numbers))
    whole = first_by_promise(found, numbers, longer)
    monkeypatch.setattr(search, "LOOKED_AHEAD", count)
    first = first_by_promise(found, numbers, longer)
    assert first.tolist() == whole[:count].tolist()
    assert len(first) == count < len(whole) == len(numbers)


def test_a_search_that_stops_says_what_it_left_open() -> None:
    found = _search(every(), wanted=4, most=3)
    assert found.simulated == 3
    assert found.open > 0
    assert found.open_seconds > 0


@pytest.mark.matrix
def test_a_faster_plan_that_does_not_fit_lacks_bytes() -> None:
    answer = advise(_search(tight(every(), 12)), _simulations(every()))
    assert answer.nearest is not None
    assert answer.nearest.seconds < answer.plans[0].seconds
    assert lacks(answer.nearest) > 0
    gains = [each.gain for each in answer.relaxed]
    assert gains == sorted(gains, reverse=True)
    assert "memory" in {each.name for each in answer.relaxed}


def test_where_nothing_fits_the_leanest_is_told() -> None:
    answer = advise(_search(tight(every(), 2)), _simulations(every()))
    assert answer.plans == ()
    assert answer.nearest is not None
    assert lacks(answer.nearest) > 0


def test_a_lean_plan_is_told_where_few_simulations_came_to_none_that_fits() -> None:
    found = _search(tight(every(), 9), wanted=3, most=0)
    assert found.plans == []
    assert found.open > 0
    answer = advise(found, _simulations(every()))
    assert answer.plans
    assert all(each.fits for each in answer.plans)
    seconds = [each.seconds for each in answer.plans]
    assert seconds == sorted(seconds)


def test_what_is_given_is_kept() -> None:
    found = candidates_of(problem_from(row(**FEW, shard="optimizer", recompute="stages")))
    layouts = [found.layout(number) for number in range(len(found))]
    assert {layout.mesh.tensor for layout in layouts} == {1}
    assert {layout.schedule for layout in layouts} == {"1f1b"}
    assert {(layout.shard, layout.recompute.text) for layout in layouts} == {
        ("optimizer", "stages")
    }


def test_a_batch_must_be_whole_sequences() -> None:
    with pytest.raises(ShapeError) as caught:
        problem_from(row(batch_tokens=100_000))
    assert caught.value.hint == "give 98,304 or 106,496"


def test_refused_candidates_are_rare() -> None:
    """Bounds are for what can be made."""
    found, refused = every(), 0
    with compile_small_work():
        for number in range(0, len(found), len(found) // 40):
            try:
                estimate_step(found.layout(number))
            except PenstockError:
                refused += 1
    assert refused == 0


def test_a_kernel_that_is_missing_is_never_better() -> None:
    sizes = row(mesh="tensor=1,sequence=1", rows=1, schedule="seq1f1b", slices=4)
    kernels = [("cudnn", True), ("flash2", True), ("flash1", True), ("unfused", False)]
    seconds = []
    for attention, fused in kernels:
        problem = problem_from(sizes | {"attention": attention, "fused_norm": fused})
        plans = _search(all_candidates(problem)).plans
        seconds.append(plans[0].seconds if plans else float("inf"))
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1]


def test_a_heavy_head_is_evened_out_by_the_split() -> None:
    """llama3.2-1b has 16 layers and a head of 128,256 words, which takes as long as two."""
    sizes = row(mesh="tensor=1,sequence=1,pipeline=2", rows=1, schedule="1f1b", vocabulary=False)
    either, even = (
        _search(all_candidates(problem_from(sizes | more))).plans[0]
        for more in ({}, {"layers": "even"})
    )
    assert either.layout.layers[0] > either.layout.layers[1]
    assert either.seconds < 0.95 * even.seconds
    given = problem_from(sizes | {"layers": "10,6"})
    assert {plan.layout.layers for plan in _search(all_candidates(given)).plans} == {(10, 6)}


def test_layers_that_the_model_has_not_are_refused() -> None:
    with pytest.raises(ShapeError, match="stages of 10, 5 layers have 15 in all, the model 16"):
        problem_from(row(layers="10,5"))


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"schedule": "adaptis"}, "adaptis is not planned with", "leave --schedule out"),
        ({"layers": "8,8", "mesh": "pipeline=8"}, "--layers 8,8, --mesh pipeline=8", "--layers"),
        ({"schedule": "interleaved", "chunks": 17}, "interleaved, --chunks 17", "out --chunks"),
        ({"schedule": "1f1b", "slices": 4}, "1f1b does not cut sequences", "seq1f1b, "),
        ({"schedule": "dualpipev", "chunks": 3}, "2 stage(s) on each device", "interleaved, "),
        ({"schedule": "1f1b", "options": {"admit": 2}}, "1f1b has no option", "leave out --option"),
        ({"vocabulary": True, "mesh": "pipeline=1"}, "--vocabulary yes", "--vocabulary or --mesh"),
        ({"vocabulary": True, "model": "qwen3-30b-a3b"}, "--vocabulary yes", "out --vocabulary"),
        ({"mesh": "tensor=3"}, "8 GPUs cannot be divided by tensor=3", "whose product divides 8"),
        ({"mesh": "tensor=1,sequence=1,pipeline=1,replicas=2"}, "8 GPUs cannot be", "leave out"),
        (
            {"mesh": "pipeline=32", "cluster": "h100:32"},
            "pipeline is 32, but the model has 16",
            "16",
        ),
        ({"mesh": "tensor=64", "cluster": "h100:64"}, "the model has 32 query heads", "to 32 or"),
        ({"mesh": "sequence=2,ring=4"}, "ring is 4, which does not divide sequence", "ring of 2"),
        ({"recompute": "all", "offload": "all"}, "--recompute all", "--recompute or --offload"),
    ],
)
def test_what_no_schedule_has_is_told(given: dict[str, Any], message: str, hint: str) -> None:
    problem = problem_from(row(**given))
    assert len(all_candidates(problem)) == 0
    error = nothing_found(problem)
    assert message in error.message
    assert hint in str(error.hint)
