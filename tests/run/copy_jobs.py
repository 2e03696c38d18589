"""What ranks do in the tests of copies of weights."""

from penstock.errors import RunError
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.copies import refuse_unequal_copies
from run.jobs import engine_of


def compare_copies(
    connection: Connection, plan: StepPlan, replicas: int, name: str, rank: int
) -> str:
    """What is said of copies, of which one number on one rank was changed."""
    with engine_of(plan, replicas) as engine:
        for weights in engine.weights.values():
            values = weights.named(weights.value)
            if connection.rank == rank and name in values:
                values[name].flatten()[0] += 1
        try:
            refuse_unequal_copies(engine)
        except RunError as refusal:
            return refusal.message
        return ""
