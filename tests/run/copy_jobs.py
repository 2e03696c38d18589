"""What ranks do in the tests of copies of weights."""

from contextlib import closing

from penstock.errors import RunError
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import engine_on
from penstock.run.step.copies import refuse_unequal_copies
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from run.jobs import CPU, engine_of, mesh_of


def compare_copies(
    connection: Connection, plan: StepPlan, replicas: int, name: str, rank: int
) -> str:
    """What is said of copies, of which one number on one rank was changed."""
    with engine_of(plan, replicas) as engine:
        for weights in engine.weights.values():
            values = weights.named(weights.value)
            if connection.rank == rank and name in values:
                values[name].flatten()[0] += 1
        return said_of_copies(engine)


def compare_shards(
    connection: Connection, plan: StepPlan, replicas: int, shared_by: int, rank: int
) -> str:
    """What is said of ranges that groups of ranks share, of which one number was changed."""
    mesh = mesh_of(replicas, plan.layout.devices, plan.layout.cell)
    engine = engine_on(mesh, plan, AdamW(), CPU, shard="full", shard_ranks=shared_by)
    with closing(engine):
        begin(engine, 1)
        if connection.rank == rank:
            next(iter(engine.weights.values())).value[0] += 1
        return said_of_copies(engine)


def said_of_copies(engine: Engine) -> str:
    try:
        refuse_unequal_copies(engine)
    except RunError as refusal:
        return refusal.message
    return ""
