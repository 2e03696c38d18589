"""What the ranks of the tests' crew do: each is called on all four of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from penstock.data.batch import Microbatch
from penstock.run.engine import Engine
from penstock.run.look import Look, look
from penstock.run.mesh import Mesh, make_mesh
from penstock.run.optimizer import AdamW
from penstock.run.plan import RunPlan
from penstock.run.rendezvous import Connection
from penstock.run.state import begin
from penstock.run.transport import Alone, Gloo

CPU = torch.device("cpu")


def batch_of(plan: RunPlan, seed: int = 0, microbatches: int | None = None) -> list[Microbatch]:
    """Random sequences of a plan's lengths; the last label of each does not count."""
    numbers = torch.Generator().manual_seed(seed)
    found = []
    for lengths in plan.lengths * (1 if microbatches is None else microbatches):
        size = plan.rows, sum(lengths)
        tokens = torch.randint(plan.model.vocabulary, size, generator=numbers)
        labels = tokens.roll(-1, 1)
        labels[:, -1] = -100
        found.append(Microbatch(tokens, labels, ((0,),) * plan.rows))
    return found


@cache
def mesh_of(replicas: int, devices: int, ends: tuple[int, int]) -> Mesh:
    """Groups are never given back, so jobs of one shape share theirs."""
    return make_mesh(replicas, devices, ends=ends)


@contextmanager
def engine_of(plan: RunPlan, replicas: int = 1) -> Iterator[Engine]:
    """The engine of this rank, with its initial weights."""
    ends = plan.homes[0], plan.homes[plan.schedule.shape.stages - 1]
    mesh = mesh_of(replicas, plan.schedule.shape.devices, ends)
    transport = Gloo(mesh.pipeline) if mesh.pipeline and mesh.devices > 1 else Alone()
    engine = Engine(plan, mesh, transport, adam=AdamW(), device=CPU)
    begin(engine, 1)
    try:
        yield engine
    finally:
        transport.close()


def looked(connection: Connection, plan: RunPlan, replicas: int) -> Look | None:
    """A look at a step; at the first device of each replica."""
    with engine_of(plan, replicas) as engine:
        return look(engine, batch_of(plan))
