"""Small problems, whose schedules are simulated in milliseconds."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from penstock.planner.candidates import Candidates, all_candidates
from penstock.planner.problem import PlanProblem, problem_from


def row(**changes: Any) -> dict[str, Any]:
    """A model of 16 layers on a machine."""
    found = {
        "model": "llama3.2-1b",
        "cluster": "h100:8",
        "tokens": 8192,
        "batch_tokens": 16 * 8192,
        "slices": 4,
    }
    return found | changes


@lru_cache(maxsize=4)
def every() -> Candidates:
    """All candidates of the small problem."""
    return all_candidates(problem_from(row()))


def with_memory(problem: PlanProblem, gibi: float) -> PlanProblem:
    gpu = replace(problem.cluster.gpu, memory=int(gibi * 2**30))
    return replace(problem, cluster=replace(problem.cluster, gpu=gpu))
