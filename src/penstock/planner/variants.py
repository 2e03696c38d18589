"""What may be chosen beside the schedule: what is shared, kept, moved, or computed again."""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from penstock.estimate.request import SHARDS
from penstock.planner.divisions import Division
from penstock.planner.problem import PlanProblem
from penstock.planner.spreading import spreading_can_pay

KEEPING = (("none", "none"), ("stages", "none"), ("none", "all"))
"""What is computed again, and what waits on the host; a run does not do both to one stage."""


class PlanVariant(NamedTuple):
    """One choice of each."""

    shard: str = "none"
    recompute: str = "none"
    offload: str = "none"
    vocabulary: bool = False

    @property
    def extras(self) -> int:
        """How many of these are not the plainest; sharing weights too counts twice."""
        changed = sum(mine != usual for mine, usual in zip(self, PlanVariant()))
        return changed + (self.shard == "full")

    @property
    def made_alike(self) -> Hashable:
        """What variants have in common whose schedules of one order are made alike."""
        return (self.shard == "full", *self[1:])


def variants(problem: PlanProblem, division: Division) -> Iterator[PlanVariant]:
    """All that suit a division, as far as the user has not chosen."""
    fixed = problem.fixed
    for shard in SHARDS if division.copies > 1 else SHARDS[:1]:
        for recompute, offload in _kept(problem):
            spreads = spreading_can_pay(problem, division, offload)
            for vocabulary in (False, True) if spreads else (False,):
                found = PlanVariant(shard, recompute, offload, vocabulary)
                chosen = {name: fixed.get(name, value) for name, value in found._asdict().items()}
                if tuple(found) == _plain(chosen):
                    yield found


def _kept(problem: PlanProblem) -> list[tuple[str, str]]:
    """With what the user wants to be computed again in place of whole stages. Ranks that compute on
    the host have one memory for both, so nothing is gained by what waits there."""
    wanted, measured = problem.fixed.get("recompute"), problem.cluster.gpu.measured
    kept = [*KEEPING] if wanted is None else [(wanted.text, "none"), ("none", "all")]
    if measured is None or not measured.on_host or "offload" in problem.fixed:
        return kept
    return [each for each in kept if each[1] == "none"]


def _plain(chosen: dict[str, object]) -> tuple[object, ...]:
    return tuple(getattr(value, "text", value) for value in chosen.values())
