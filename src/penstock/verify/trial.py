"""What every process does for one trial: the gradients of a batch, by the engine that trains."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

import torch

from penstock.errors import ShapeError
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import back_end_of, engine_on, torch_device
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import all_entries, entries, publish
from penstock.verify.compare import HeldGradient
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.variants import Trial


class TrialPart(NamedTuple):
    """What one process has arrived at."""

    loss: float
    held: list[HeldGradient]
    """Gradients; a tied weight stands twice where one process holds both its ends."""
    back_end: str = ""
    """What moved tensors between processes, if there were others."""


def refuse_device(device: str) -> None:
    """Refuse a GPU that is not there before any process is started."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ShapeError(
            "--device is cuda, but this machine has no CUDA device",
            hint="leave out --device, or install a torch that is built for the GPU of this machine",
        )


def run_trial(connection: Connection, trial: Trial) -> TrialPart:
    """One step of this process's share."""
    with trial_engine(connection, trial) as engine:
        return trial_part(engine, trial)


def run_alone(connection: Connection, trial: Trial) -> TrialPart:
    """A trial of one device, on the first process; the others have nothing to do."""
    if connection.rank:
        return TrialPart(0.0, [])
    device = _device(connection, trial)
    with closing(engine_on(Mesh(Grid()), trial_plan(trial), NoUpdate(), device)) as engine:
        return trial_part(engine, trial)


@contextmanager
def trial_engine(connection: Connection, trial: Trial) -> Iterator[Engine]:
    """This process's engine for a trial, on groups that trials of one shape share."""
    device = _device(connection, trial)
    mesh = make_mesh(trial.replicas, trial.schedule.shape.devices, trial.cell)
    with closing(
        engine_on(mesh, trial_plan(trial), NoUpdate(), device, shard=trial.shard)
    ) as engine:
        yield engine


def _device(connection: Connection, trial: Trial) -> torch.device:
    """Where the tensors of this process are, with products of float32 in float32."""
    device = torch_device(trial.scale.device, connection.place)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("highest")  # TF32 keeps 11 bits
    return device


def trial_plan(trial: Trial) -> StepPlan:
    longest = max(map(sum, trial.lengths))
    dtype = getattr(torch, trial.dtype)
    layout = Layout.of(
        trial.work.model, trial.schedule, longest, layers=trial.layers, dtype=dtype, cell=trial.cell
    )
    rows = trial.work.batch.rows
    return StepPlan(layout, trial.schedule, trial.lengths, rows, trial.groups)


def trial_part(engine: Engine, trial: Trial) -> TrialPart:
    """Loss and gradients of the batch, of which this replica takes its share."""
    _load(engine)
    batch = microbatches_of(trial.work.batch, engine.layout.model.vocabulary)
    share, replica = trial.schedule.shape.microbatches, engine.mesh.replica
    outcome = engine.gradients(batch[replica * share : (replica + 1) * share])
    held = [
        HeldGradient(entry.name, entry.grad.cpu(), entry.part.index) for entry in entries(engine)
    ]
    return TrialPart(outcome.loss, held, back_end_of(engine.mesh, engine.device))


def _load(engine: Engine) -> None:
    """Give every stage the weights that the oracle has too."""
    values = parameters_of(engine.layout.model, engine.layout.main)
    for entry in all_entries(engine):
        entry.take(values[entry.name])
    publish(engine)
