"""What the ranks of the tests' crew do as cells: some steps of training, and collectives."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from penstock.arch.mesh_shape import MeshShape
from penstock.model.parallel.group import Pending
from penstock.run.comm.cell_group import CellGroup
from penstock.run.comm.mesh import make_mesh
from penstock.run.observe.memory_meter import LiveBytes
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


def trained_cell(
    connection: Connection, plan: StepPlan, mesh: MeshShape, shard: str, steps: int = 3
) -> HeldWeights:
    """Some steps, each replica with its share of the batches."""
    on = make_mesh(mesh.replicas, plan.layout.devices, mesh.cell)
    engine = engine_on(on, plan, AdamW(), CPU, shard=shard)
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


def left_after_waiting(connection: Connection) -> dict[str, int]:
    """Bytes that are there once collectives were waited for, beside their results, while what was
    waited for is still held."""
    group = CellGroup(_world())
    found = {}
    for name, start in _COLLECTIVES.items():
        with LiveBytes() as meter, torch.no_grad():
            results, pending = start(group, torch.ones(4 * ROOM))
            pending.wait()
            found[name] = meter.level - sum(result.untyped_storage().nbytes() for result in results)
            del pending
    return found


def _world() -> ProcessGroup:
    assert distributed.group.WORLD is not None
    return distributed.group.WORLD


def _exchanged(group: CellGroup, given: Tensor) -> tuple[list[Tensor], Pending]:
    """What is returned are parts of one tensor."""
    received, pending = group.exchange(given.split(ROOM), [(ROOM,)] * 4)
    return received[:1], pending


def _passed(group: CellGroup, given: Tensor) -> tuple[list[Tensor], Pending]:
    received, pending = group.pass_on([given], [(4 * ROOM,)])
    return received, pending


def _summed(group: CellGroup, given: Tensor) -> tuple[list[Tensor], Pending]:
    total, pending = group.scatter_sum(given, [ROOM] * 4)
    return [total], pending


ROOM = 1000
_COLLECTIVES: dict[str, Callable[[CellGroup, Tensor], tuple[list[Tensor], Pending]]] = {
    "add_up": lambda group, given: ([], group.add_up(given)),
    "scatter_sum": _summed,
    "exchange": _exchanged,
    "pass_on": _passed,
}
