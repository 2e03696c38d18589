"""An order that gets better while the run goes on.

A run begins with an order that is known to be safe. Its steps show what ops and transfers take on
this machine, with this model; with these times a solver looks for a better order in a process
beside the run (search/exact). What it finds is proven, simulated with the times of the last step,
and taken between two steps if it saves enough. Orders are kept by the signature of their problem.
Source: arXiv:2510.05186, section 2.
"""

from fractions import Fraction
from pathlib import Path

from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.cost.hardware import HARDWARE
from penstock.cost.profile import Profile
from penstock.cost.transformer import TransformerCost
from penstock.plan.cell_memory import fullest_rank
from penstock.run.observe.device_workload import workload_of
from penstock.run.observe.step_times import MeasuredTimes
from penstock.run.policies.known_orders import KnownOrder, KnownOrders
from penstock.run.policies.memory_room import MemoryRoom
from penstock.run.policies.policy import Proposal
from penstock.run.program.step_plan import StepPlan
from penstock.search.exact.exact import Solution
from penstock.search.exact.measured_problem import OrderProblem
from penstock.search.exact.solver_process import SolverProcess
from penstock.sim import simulate

IMPROVED = "+improved"
STORED = "an order that the solver found before for such times"
CHANGED = Fraction(1, 10)
"""Share by which a step's prediction must have changed for the solver to be asked again."""


class ImprovingOrder:
    """Asks a solver for better orders, and proposes the best one that is known."""

    def __init__(self, room: MemoryRoom, folder: Path, gain: Fraction, effort: float) -> None:
        """Orders are kept in the folder; `gain` is the share of a step that a change must save,
        `effort` is in seconds of the solver's own clock."""
        self.room, self.gain, self.effort = room, gain, effort
        self.remarks: list[str] = []
        self._known = KnownOrders(folder)
        self._solver: SolverProcess | None = None
        self._asked: Fraction | None = None
        """What the order in force was predicted to take when the solver was last asked."""

    def propose(self, plan: StepPlan, times: MeasuredTimes) -> Proposal | None:
        """The best order that is known for these times, if it is so much better."""
        profile = times.profile(_sizes(plan, self.room))
        self._known.add(KnownOrder(plan.schedule, "the order of the start"))
        self._collect(plan)
        before = simulate(plan.schedule, profile).makespan
        if self._solver is None and self._is_new(before):
            self._ask(plan, profile)
            self._asked = before
        predicted = [(simulate(order.schedule, profile).makespan, order) for order in self._known]
        after, best = min(predicted, key=lambda pair: pair[0])
        if before - after <= self.gain * before:
            return None
        rest = (best.why, float(before), float(after))
        return Proposal(best.schedule, plan.lengths, plan.rows, *rest)

    def wait(self) -> None:
        """Return when the solver has ended, for whoever cannot train on meanwhile."""
        if self._solver is not None:
            self._solver.wait()

    def close(self) -> None:
        """End the solver."""
        if self._solver is not None:
            self._solver.close()
            self._solver = None

    def _is_new(self, time: Fraction) -> bool:
        """Whether times have changed so much that another order may be the best one."""
        return self._asked is None or abs(time - self._asked) > CHANGED * self._asked

    def _ask(self, plan: StepPlan, profile: Profile) -> None:
        """Take the order of a file, or ask the solver for one."""
        limit = Fraction(self.room.for_activations(plan))
        problem = OrderProblem.of(plan.schedule, profile, limit, self.effort)
        stored = self._known.stored(problem.signature)
        if stored is None or not self._take(plan, KnownOrder(stored, STORED)):
            self._solver = SolverProcess(problem)

    def _collect(self, plan: StepPlan) -> None:
        """Take what the solver has found since the last look."""
        if self._solver is None or self._solver.running:
            return
        found = self._solver.solution()
        if found is None:
            self.remarks.append(f"the solver found no order: {self._solver.failure}")
        elif self._take(plan, KnownOrder(as_improved(found.schedule), verdict(found))):
            self._known.store(self._solver.problem.signature, as_improved(found.schedule))
        self.close()

    def _take(self, plan: StepPlan, order: KnownOrder) -> bool:
        """Keep an order for choosing, if it is one of this run, is proven, and has room."""
        if order.schedule.shape != plan.schedule.shape or not check(order.schedule).proven:
            return False
        if not self.room.fits(StepPlan(plan.layout, order.schedule, plan.lengths, plan.rows)):
            return False
        self._known.add(order)
        return True


def as_improved(schedule: Schedule) -> Schedule:
    """The schedule under a name that says that it is not the one of its file or record."""
    return schedule.renamed(f"{schedule.name.removesuffix(IMPROVED)}{IMPROVED}")


def verdict(found: Solution) -> str:
    """How good an order is, by what the solver has proven."""
    if found.optimal:
        return "the solver proved that no order of these ops is faster at the measured times"
    above = float(found.value / found.bound - 1)
    return f"the solver's order for the measured times, at most {above:.1%} above the fastest"


def _sizes(plan: StepPlan, room: MemoryRoom) -> TransformerCost:
    """Bytes of what ops hold, on the rank of a device that holds most."""
    workload = workload_of(plan, room.torch_device)
    fullest = fullest_rank(plan.schedule, workload, plan.layout.cell, plan.rows)
    return TransformerCost(fullest, next(iter(HARDWARE.values())))
