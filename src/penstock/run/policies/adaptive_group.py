"""Groups that follow the network: more microbatches in a group while transfers are slow.

A group of microbatches hides the transfer of one member behind the work of the others, and keeps
that many times the activations (`transform.group`). How many are needed depends on what transfers
take now. So every candidate is simulated with the times of the last step, and the run changes where
that saves enough. A smaller group that is as good needs less memory, so it is taken as well.
Source: arXiv:2303.01675, section on choosing again while training; the rules are ours.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from statistics import median

from penstock.cost.model import UnitCost
from penstock.cost.profile import Key
from penstock.plan.adaptive import choose_group
from penstock.plan.grouping import Grouping
from penstock.run.observe.step_times import MeasuredTimes
from penstock.run.policies.policy import Proposal
from penstock.run.program.step_plan import StepPlan
from penstock.sim import simulate


class AdaptiveGroup:
    """Chooses among plans that differ in their groups, and perhaps in the size of microbatches."""

    def __init__(self, candidates: Mapping[Grouping, StepPlan], gain: Fraction) -> None:
        """`gain` is the share of a step that a larger group must save."""
        self.candidates, self.gain = dict(candidates), gain
        self.remarks: list[str] = []
        self._ops: dict[int, dict[Key, float]] = {}
        """Seconds of ops by size of microbatch, as they were last measured."""

    def propose(self, plan: StepPlan, times: MeasuredTimes) -> Proposal | None:
        """The group that suits the times; first every size of microbatch is tried for a while."""
        current = self._way_of(plan)
        self._ops[current.size] = times.ops
        if untried := self._untried():
            return self._proposal(untried, _TRIED)
        predicted = {way: self._predict(way, times) for way in self.candidates}
        chosen = choose_group(predicted, current, self.gain)
        if chosen == current:
            return None
        found = self._proposal(chosen, _why(times.links.values()))
        return found._replace(before=float(predicted[current]), after=float(predicted[chosen]))

    def close(self) -> None:
        return None

    def _way_of(self, plan: StepPlan) -> Grouping:
        return next(
            way for way, other in self.candidates.items() if other.signature == plan.signature
        )

    def _untried(self) -> Grouping | None:
        return next((way for way in self.candidates if way.size not in self._ops), None)

    def _predict(self, way: Grouping, times: MeasuredTimes) -> Fraction:
        """Seconds of a step of a candidate, if transfers stay as they are."""
        measured = times._replace(ops=self._ops[way.size])
        profile = measured.profile(UnitCost())
        return simulate(self.candidates[way].schedule, profile).makespan

    def _proposal(self, way: Grouping, why: str) -> Proposal:
        plan = self.candidates[way]
        return Proposal(plan.schedule, plan.lengths, plan.rows, why)


_TRIED = "microbatches of this size have not been measured yet"


def _why(transfers: Iterable[float]) -> str:
    """What has led to a choice."""
    return f"transfers take {1000 * median(transfers):.2f} ms"
