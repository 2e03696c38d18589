"""What the ranks of the tests' crew do under plans that change at times that are given."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from unittest import mock

from penstock.cost.model import UnitCost
from penstock.plan.grouping import Grouping
from penstock.run.observe.step_times import MeasuredTimes, measured_times
from penstock.run.policies import changing
from penstock.run.policies.adaptive_group import AdaptiveGroup
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.sim import simulate
from run.jobs import batch_of, engine_of


def adaptive_by_hops(
    connection: Connection, candidates: Mapping[Grouping, StepPlan], hops: Sequence[int]
) -> list[tuple[str, float, str]]:
    """Plan, loss and change of steps whose transfers are said to have taken these times; F is 1
    and B is 2. A rank that is not the first one measures nothing."""
    first, found = next(iter(candidates.values())), list[tuple[str, float, str]]()

    def measured(engine: Engine) -> MeasuredTimes | None:
        if engine.mesh.rank:
            return None
        cost = UnitCost(hop=Fraction(hops[len(found)]))
        return measured_times(simulate(engine.plan.schedule, cost))

    with engine_of(first) as engine, mock.patch.object(changing, "measure_step", measured):
        policy = AdaptiveGroup(candidates, Fraction(1, 50))
        plans = changing.ChangingPlan(engine, policy, 1)
        for step in range(len(hops)):
            name, loss = engine.plan.schedule.name, engine.step(batch_of(first, step), 0.01).loss
            change = plans.after_step(step + 1)
            found.append((name, loss, change.words if change else ""))
    return found
