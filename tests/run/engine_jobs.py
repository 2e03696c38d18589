"""What the ranks of the tests' crew do with an engine beyond training some steps."""

from collections.abc import Sequence

import torch

from penstock.data.batch import IGNORE, Microbatch
from penstock.errors import RunError
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from run.jobs import Learnt, batch_of, engine_of, trained


def trained_after_bfloat16(connection: Connection, plan: StepPlan, narrow: StepPlan) -> Learnt:
    """A step after one in bfloat16, begun with the kernels that torch falls back on."""
    trained(connection, narrow, 1, 1)
    torch._C._set_mkldnn_enabled(False)
    return trained(connection, plan, 1, 1)


def unequal_batches(plan: StepPlan, replicas: int) -> list[list[Microbatch]]:
    """Two global batches; the further back a microbatch stands, the fewer of its labels count."""
    batches = [batch_of(plan, seed, replicas) for seed in range(2)]
    for batch in batches:
        for number, microbatch in enumerate(batch):
            microbatch.labels[:, : 5 * number] = IGNORE
    return batches


def evaluated(connection: Connection, plan: StepPlan, replicas: int) -> float:
    """The loss of the unequal batches, of which each replica takes its share."""
    with engine_of(plan, replicas) as engine:
        first = engine.mesh.replica * len(plan.lengths)
        mine = slice(first, first + len(plan.lengths))
        return engine.evaluate(batch[mine] for batch in unequal_batches(plan, replicas))


def stepped_with_labels_of(
    connection: Connection, plan: StepPlan, replicas: Sequence[int]
) -> tuple[int, str]:
    """A step in which labels count in these replicas' shares only, and a step in which none do:
    the labels of the first and the complaint about the second."""
    with engine_of(plan, 2) as engine:
        batch = batch_of(plan)
        empty = [m._replace(labels=torch.full_like(m.labels, IGNORE)) for m in batch]
        found = engine.step(batch if engine.mesh.replica in replicas else empty, 0.01)
        before = {stage: w.main.clone() for stage, w in engine.weights.items()}
        try:
            engine.step(empty, 0.01)
        except RunError as error:
            kept = all(torch.equal(before[stage], w.main) for stage, w in engine.weights.items())
            return found.labels, error.message if kept else "the weights have changed"
    return found.labels, ""


def trained_by_turns(
    connection: Connection, plans: Sequence[StepPlan], order: Sequence[int]
) -> tuple[list[float], int]:
    """Losses of steps under plans that change, and how many plans were compiled."""
    with engine_of(plans[0]) as engine:
        losses = []
        for step, number in enumerate(order):
            engine.use(plans[number])
            losses.append(engine.step(batch_of(plans[number], step), 0.01).loss)
        return losses, len(engine._executors)


def disagreed(connection: Connection, plans: Sequence[StepPlan]) -> str:
    """What a rank is told when rank 2 has chosen another plan than the others."""
    with engine_of(plans[0]) as engine:
        try:
            engine.use(plans[1] if connection.rank == 2 else plans[0])
        except RunError as error:
            return error.message
    return ""


def evaluated_and_trained(connection: Connection, plan: StepPlan, steps: int) -> list[float]:
    """Losses of evaluations and steps, by turns."""
    found = []
    with engine_of(plan) as engine:
        for step in range(steps):
            batch = batch_of(plan, step)
            found += [engine.evaluate([batch]), engine.step(batch, 0.01).loss]
    return found
