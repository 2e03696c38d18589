"""The search finds what simulating everything finds."""

import pytest

from penstock.core.kernel import compile_small_work
from penstock.errors import PenstockError, ShapeError
from penstock.estimate.price import estimate_step
from penstock.planner.advice import advise, lacks
from penstock.planner.candidates import Candidates
from penstock.planner.problem import problem_from
from penstock.planner.search import WORTH, SearchResult, search_plans
from penstock.planner.simulations import Simulations
from penstock.planner.workers import PlanWorkers
from planner.problems import candidates_of, every, row, tight

pytestmark = pytest.mark.long

FEW = {"mesh": "tensor=1,sequence=1", "rows": 1, "schedule": "1f1b", "vocabulary": False}


def _search(found: Candidates, wanted: int = 1, most: int = 200) -> SearchResult:
    return search_plans(found, wanted, most, lambda count, best: None, _simulations(found))


def _simulations(found: Candidates) -> Simulations:
    return Simulations(PlanWorkers(found.problem))


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
