"""A run whose plan may change between two steps: measure, decide on one rank, tell all, take.

The first rank decides, because ranks that decided by themselves could decide differently. It tells
the schedule as data; every rank reads the same text, proves and compiles it, and the engine asks
all ranks whether they have the same plan before any of them takes it.
"""

import json

from penstock.files import FORMATS
from penstock.run.comm.collective import tell_all
from penstock.run.observe.step_times import measure_step
from penstock.run.policies.policy import PlanChange, PlanPolicy, Proposal
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine

_FORMAT = FORMATS["json"]


class ChangingPlan:
    """The plan of a run, looked at every so many steps."""

    def __init__(self, engine: Engine, policy: PlanPolicy, every: int) -> None:
        """`every` is the number of steps between two looks; 0 never looks."""
        self.engine, self.policy, self.every = engine, policy, every

    def after_step(self, done: int) -> PlanChange | None:
        """Change the plan where the policy wants it, after so many steps; all ranks call this."""
        if not self.every or done % self.every:
            return None
        engine = self.engine
        engine.tracker.at = "looks at its plan"
        with engine.tracker.gathers("tell what their step took"):
            times = measure_step(engine)
        found = self.policy.propose(engine.plan, times) if times is not None else None
        with engine.tracker.gathers("hear of the plan of the next steps"):
            told = tell_all(proposal_text(found), engine.mesh.world)
        if not told:
            return None
        proposal = read_proposal(told)
        engine.settle()  # a step that is not validated yet belongs to the plan before
        engine.use(plan_of_proposal(engine.plan, proposal))
        schedule = proposal.schedule.name
        return PlanChange(done, schedule, proposal.why, proposal.before, proposal.after)

    def remarks(self) -> list[str]:
        """What has not been told yet, on the first rank."""
        told, self.policy.remarks = self.policy.remarks, []
        return told

    def close(self) -> None:
        """End what the policy does at the side."""
        self.policy.close()


def plan_of_proposal(plan: StepPlan, proposal: Proposal) -> StepPlan:
    """The proposed plan, over the layout of the one in force."""
    return StepPlan(plan.layout, proposal.schedule, proposal.lengths, proposal.rows)


def proposal_text(proposal: Proposal | None) -> str:
    """A proposal as text; nothing where there is none."""
    if proposal is None:
        return ""
    return json.dumps(
        {**proposal._asdict(), "schedule": _FORMAT.dumps(proposal.schedule)}, separators=(",", ":")
    )


def read_proposal(text: str) -> Proposal:
    """The proposal that a text says."""
    read = json.loads(text)
    read["schedule"] = _FORMAT.loads(read["schedule"], "")
    read["lengths"] = tuple(map(tuple, read["lengths"]))
    return Proposal(**read)
