"""What the ranks of the tests' crew do as cells: some steps of training."""

from functools import cache
from typing import NamedTuple

from torch import Tensor

from penstock.arch.mesh_shape import MeshShape
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import engine_on
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from run.jobs import CPU, batch_of


class HeldWeights(NamedTuple):
    """What one rank computes with after training, and where it stands."""

    place: dict[str, int]
    values: dict[str, Tensor]
    """By stage and name of the parameter."""


@cache
def _mesh(mesh: MeshShape, devices: int) -> Mesh:
    """Groups are never given back, so jobs of one shape share theirs."""
    return make_mesh(mesh.replicas, devices, mesh.cell)


def trained_cell(
    connection: Connection, plan: StepPlan, mesh: MeshShape, shard: str, steps: int = 3
) -> HeldWeights:
    """Some steps, each replica with its share of the batches."""
    engine = engine_on(_mesh(mesh, plan.layout.devices), plan, AdamW(), CPU, shard=shard)
    begin(engine, 1)
    count = len(plan.lengths)
    first = engine.mesh.replica * count
    for step in range(steps):
        engine.step(batch_of(plan, step, mesh.replicas)[first : first + count], 0.01)
    values = {
        f"{stage} {name}": value.clone()
        for stage, weights in engine.weights.items()
        for name, value in weights.named(weights.value).items()
    }
    engine.close()
    return HeldWeights(engine.mesh.grid.coordinates(connection.rank), values)
