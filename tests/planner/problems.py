"""Small problems, whose schedules are simulated in milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.arch.presets import model
from penstock.core.kernel import compile_small_work
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import Estimate, estimate_step
from penstock.fusion.fusion_plan import fused_model, read_fusion_plan
from penstock.planner.candidates import Candidates, all_candidates
from penstock.planner.problem import PlanProblem, problem_from
from penstock.planner.simulations import CandidateOutcome, Simulations, Slower


def row(**changes: Any) -> dict[str, Any]:
    """A model of 16 layers on a machine."""
    found = {
        "model": "llama3.2-1b",
        "cluster": "h100:8",
        "tokens": 8192,
        "batch_tokens": 16 * 8192,
    }
    return found | changes


def candidates_of(problem: PlanProblem) -> Candidates:
    """All candidates of a problem, bounded here."""
    return all_candidates(problem)


FUSED = fused_model(model("llama3.2-1b"), read_fusion_plan("remove=4-11 fuse=4-9"))
"""The same model with layers of three kinds: six MLPs are one, and two more have no attention."""


def problem_of(config: ModelConfig, **changes: Any) -> PlanProblem:
    """The small problem, of a model that has no name."""
    return replace(problem_from(row(**changes)), model=config)


@lru_cache(maxsize=4)
def every(config: ModelConfig | None = None) -> Candidates:
    """All candidates of the small problem, or of another model."""
    return candidates_of(problem_of(config) if config else problem_from(row()))


def with_memory(problem: PlanProblem, gibi: float) -> PlanProblem:
    gpu = replace(problem.cluster.gpu, memory=int(gibi * 2**30))
    return replace(problem, cluster=replace(problem.cluster, gpu=gpu))


def tight(found: Candidates, gibi: float) -> Candidates:
    """The same candidates on GPUs with so much memory."""
    return replace(found, problem=with_memory(found.problem, gibi))


@dataclass(frozen=True)
class Remembered(Simulations):
    """Simulations that are done once, whatever the memory of the GPUs is."""

    seen: dict[TrainingLayout, Estimate] = field(default_factory=dict)

    def below(
        self, candidates: Candidates, numbers: Sequence[int], limits: Sequence[float]
    ) -> list[CandidateOutcome]:
        """What another search has simulated, or this one now."""
        return [self._of(candidates.layout(at), limit) for at, limit in zip(numbers, limits)]

    def _of(self, layout: TrainingLayout, limit: float) -> CandidateOutcome:
        gpu = replace(layout.cluster.gpu, memory=2**40)
        wide = replace(layout, cluster=replace(layout.cluster, gpu=gpu))
        if wide not in self.seen:
            with compile_small_work():
                self.seen[wide] = estimate_step(wide)
        found = replace(self.seen[wide], layout=layout)
        return found if found.seconds < limit else Slower(found.seconds)
