"""What every process does for one trial: the gradients of a batch, by the engine that trains."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.comm.transport import Alone, Gloo, Transport
from penstock.run.launch.rendezvous import Connection
from penstock.run.program.plan import RunPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import entries, publish
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.variants import Trial


class TrialPart(NamedTuple):
    """What one process has arrived at."""

    loss: float
    held: list[tuple[str, Tensor]]
    """Gradients by name; a tied weight stands twice where one process holds both its ends."""


def run_trial(connection: Connection, trial: Trial) -> TrialPart:
    """One step of this process's share."""
    plan = trial_plan(trial)
    ends = plan.homes[0], plan.homes[trial.schedule.shape.stages - 1]
    mesh = _mesh(trial.replicas, trial.schedule.shape.devices, ends)
    if mesh.pipeline is None:
        return step(trial, plan, mesh, Alone())
    transport = Gloo(mesh.pipeline)
    try:
        return step(trial, plan, mesh, transport)
    finally:
        transport.close()


def run_alone(connection: Connection, trial: Trial) -> TrialPart:
    """A trial of one device, on the first process; the others have nothing to do."""
    if connection.rank:
        return TrialPart(0.0, [])
    return step(trial, trial_plan(trial), Mesh(1, 1, 0), Alone())


@cache
def _mesh(replicas: int, devices: int, ends: tuple[int, int]) -> Mesh:
    """Groups cost sockets and are never given back, so trials of one shape share theirs."""
    return make_mesh(replicas, devices, ends=ends)


def trial_plan(trial: Trial) -> RunPlan:
    return RunPlan(
        trial.work.model,
        trial.schedule,
        trial.lengths,
        trial.layers,
        getattr(torch, trial.dtype),
        trial.work.batch.rows,
    )


def step(trial: Trial, plan: RunPlan, mesh: Mesh, transport: Transport) -> TrialPart:
    """Loss and gradients of the batch, of which this replica takes its share."""
    engine = Engine(plan, mesh, transport, adam=AdamW(), device=torch.device("cpu"))
    _load(engine)
    batch = microbatches_of(trial.work.batch, plan.model.vocabulary)
    share = trial.schedule.shape.microbatches
    outcome = engine.gradients(batch[mesh.replica * share : (mesh.replica + 1) * share])
    return TrialPart(outcome.loss, [(entry.name, entry.grad) for entry in entries(engine)])


def _load(engine: Engine) -> None:
    """Give every stage the weights that the oracle has too."""
    values = parameters_of(engine.plan.model, engine.plan.main)
    for entry in entries(engine):
        entry.main.copy_(values[entry.name])
    publish(engine)
