"""What every process does for one trial: the gradients of a batch, by the engine that trains."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import transport_for
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
    return step(trial, _mesh(trial.replicas, trial.schedule.shape.devices))


def run_alone(connection: Connection, trial: Trial) -> TrialPart:
    """A trial of one device, on the first process; the others have nothing to do."""
    if connection.rank:
        return TrialPart(0.0, [])
    return step(trial, Mesh(Grid()))


@cache
def _mesh(replicas: int, devices: int) -> Mesh:
    """Groups cost sockets and are never given back, so trials of one shape share theirs."""
    return make_mesh(replicas, devices)


def trial_plan(trial: Trial) -> StepPlan:
    longest = max(map(sum, trial.lengths))
    dtype = getattr(torch, trial.dtype)
    layout = Layout.of(trial.work.model, trial.schedule, longest, layers=trial.layers, dtype=dtype)
    return StepPlan(layout, trial.schedule, trial.lengths, trial.work.batch.rows)


def step(trial: Trial, mesh: Mesh) -> TrialPart:
    """Loss and gradients of the batch, of which this replica takes its share."""
    plan, device = trial_plan(trial), torch.device("cpu")
    engine = Engine(plan, mesh, transport_for(mesh, device), adam=AdamW(), device=device)
    try:
        _load(engine)
        batch = microbatches_of(trial.work.batch, plan.layout.model.vocabulary)
        share = trial.schedule.shape.microbatches
        outcome = engine.gradients(batch[mesh.replica * share : (mesh.replica + 1) * share])
        return TrialPart(outcome.loss, [(entry.name, entry.grad) for entry in entries(engine)])
    finally:
        engine.close()


def _load(engine: Engine) -> None:
    """Give every stage the weights that the oracle has too."""
    values = parameters_of(engine.layout.model, engine.layout.main)
    for entry in entries(engine):
        entry.main.copy_(values[entry.name])
    publish(engine)
