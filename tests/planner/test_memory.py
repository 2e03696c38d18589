"""More memory is never worse (arXiv:2311.05610, what must hold, 6): over clusters and sizes, and
where a search is cut off."""

from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest

from loops import one_of
from penstock.planner.candidates import Candidates
from penstock.planner.problem import problem_from
from penstock.planner.processes import PlanProcesses
from penstock.planner.search import WORTH, SearchResult, search_plans
from planner.problems import Remembered, candidates_of, row, tight

pytestmark = pytest.mark.long

PROBLEMS = {
    "one machine": row(mesh="tensor=1,sequence=1", rows=1, schedule="seq1f1b", slices=4),
    "two machines": row(cluster="a100-40:16", mesh="sequence=1", schedule="1f1b", rows=1),
    "all sorts of schedules": row(
        mesh="tensor=2,sequence=1,pipeline=2", rows=1, shard="none", offload="none"
    ),
}
SIZES = [6.0, 8.0, 9.5, 11.0, 14.0, 17.0, 22.0, 30.0, 48.0, 80.0]
"""GiB of a GPU, from those with which hardly a plan fits to those with which nearly all do."""


@lru_cache(maxsize=len(PROBLEMS))
def _problem(name: str) -> tuple[Candidates, Remembered]:
    problem = problem_from(PROBLEMS[name])
    return candidates_of(problem), Remembered(PlanProcesses(problem))


def _search(name: str, gibi: float, most: int) -> SearchResult:
    found, simulations = _problem(name)
    return search_plans(tight(found, gibi), 2, most, lambda count, best: None, simulations)


def _best(found: SearchResult) -> float:
    return found.plans[0].seconds if found.plans else np.inf


@pytest.mark.parametrize("name", one_of(3, ((name,) for name in PROBLEMS)))
def test_more_memory_is_never_worse(name: str) -> None:
    searches = [_search(name, gibi, 10_000) for gibi in SIZES]
    assert [found.open for found in searches] == [0] * len(SIZES)
    best = [_best(found) for found in searches]
    for less, more in pairwise(best):
        assert more <= less / (1 - WORTH)
    assert best[-1] < best[0]


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("most", [3, 20])
def test_a_search_that_is_cut_off_says_what_could_be_better(name: str, most: int) -> None:
    """What less memory has found was simulated, or is not faster, or is still open."""
    searches = [_search(name, gibi, most) for gibi in SIZES]
    for less, more in pairwise(searches):
        kept = _best(more) <= _best(less) / (1 - WORTH)
        assert kept or (more.open and more.open_seconds <= _best(less))


def test_a_search_has_one_answer() -> None:
    """Orders and limits are the same every time."""
    first, again = (_search("all sorts of schedules", 14.0, 20) for _ in range(2))
    assert [plan.layout for plan in first.plans] == [plan.layout for plan in again.plans]
    assert (first.simulated, first.open, first.open_seconds) == (
        again.simulated,
        again.open,
        again.open_seconds,
    )
