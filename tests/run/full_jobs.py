"""What the ranks of the tests' crew do with weights that are sharded fully."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple
from unittest import mock

from torch import Tensor, distributed

from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.execute.observer import Quiet
from penstock.run.observe.memory_meter import LiveBytes
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Call
from penstock.run.program.rotation import rotation_of
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.full_sharding import FullShards
from penstock.run.step.optimizer import AdamW
from penstock.run.step.outcome import Outcome
from penstock.run.step.shardings import SHARDINGS, sharding_named
from penstock.run.step.state import begin
from run.jobs import CPU, batch_of
from run.shard_jobs import SharedRun, sharded_engine, share_of_batch, trained_with

Wrapped = Callable[..., None]


def _drop_one(whole: Wrapped) -> Wrapped:
    """Leave out the third call."""
    numbers = count()
    return lambda *given: None if next(numbers) == 2 else whole(*given)


def _without_adding(whole: Wrapped) -> Wrapped:
    """Forget what one reduction has brought."""
    numbers = count()

    def reduce(sharding: FullShards, weights: Any, gradient: Tensor, mesh: Mesh) -> None:
        if next(numbers) == 2:
            gradient.zero_()
        whole(sharding, weights, gradient, mesh)

    return reduce


def _of_first_step(whole: Wrapped) -> Wrapped:
    """Gather what there was when a stage was gathered first."""
    first: dict[int, Tensor] = {}

    def fetch(sharding: FullShards, weights: Any, buffer: Tensor, mesh: Mesh) -> None:
        whole(sharding, weights, buffer, mesh)
        buffer.copy_(first.setdefault(id(weights), buffer.clone()))

    return fetch


FAULTS: Mapping[str, tuple[str, Callable[[Wrapped], Wrapped]]] = {
    "a gather is left out": ("fetch", _drop_one),
    "old weights are gathered": ("fetch", _of_first_step),
    "a reduction is forgotten": ("reduce", _without_adding),
}


def trained_with_fault(
    connection: Connection, plan: StepPlan, replicas: int, fault: str
) -> SharedRun:
    """Three steps of which one collective is wrong on all ranks."""
    name, change = FAULTS[fault]
    with mock.patch.object(FullShards, name, change(getattr(FullShards, name))):
        return trained_with(connection, plan, replicas, "full")


class Spoiling(Quiet):
    """Makes a buffer no number as soon as the last op has used what a gather has brought."""

    def __init__(self, engine: Engine) -> None:
        rotation = rotation_of(engine.executor.program.schedule, engine.mesh.device)
        lane = engine.executor.program.schedule.lane(engine.mesh.device)
        self._flat = engine.pool.flat["weight"]
        self.last: dict[Any, int] = {}
        """Buffers by the op that uses them last for a stage."""
        used: dict[int, Any] = {}
        for op in lane:
            if op in rotation.weight:
                before = used.get(rotation.weight[op])
                if before is not None and before.stage != op.stage:
                    self.last[before] = rotation.weight[op]
                used[rotation.weight[op]] = op
        self.last |= {op: buffer for buffer, op in used.items()}

    def ran(self, call: Call) -> None:
        if call.op in self.last:
            self._flat[self.last[call.op]].fill_(float("nan"))


def losses_with_spoiled_buffers(
    connection: Connection, plan: StepPlan, replicas: int, shard: str
) -> list[Outcome]:
    """Three steps; where weights are sharded, each buffer is spoiled after each last use."""
    with sharded_engine(plan, replicas, shard) as engine:
        if shard == "full":
            engine.executor.observer = Spoiling(engine)
        return [engine.step(share_of_batch(engine, step), 0.01) for step in range(3)]


def trained_alone(connection: Connection, plan: StepPlan, shard: str) -> list[Outcome]:
    """Three steps of one rank."""
    engine = Engine(
        plan, Mesh(Grid()), Alone(), adam=AdamW(), device=CPU, sharding=sharding_named(shard)
    )
    begin(engine, 1)
    found = [engine.step(batch_of(plan, step), 0.01) for step in range(3)]
    engine.close()
    return found


class Collected(NamedTuple):
    """What the collective lane of a rank has done in one step."""

    ran: list[str]
    """Letters of its ops."""
    sent: dict[str, int]
    """Bytes sent to ranks that hold the same stages, by letter."""


@contextmanager
def _watched(engine: Engine, found: Collected) -> Iterator[None]:
    send, fetch, reduce = distributed.isend, FullShards.fetch, FullShards.reduce

    def sending(tensor: Tensor, **where: Any) -> Any:
        if where.get("group") is engine.mesh.copies:
            found.sent[found.ran[-1]] += tensor.nbytes
        return send(tensor, **where)

    def fetching(*given: Any) -> None:
        found.ran.append("G")
        fetch(*given)

    def reducing(*given: Any) -> None:
        found.ran.append("Z")
        reduce(*given)

    with (
        mock.patch.object(distributed, "isend", sending),
        mock.patch.object(FullShards, "fetch", fetching),
        mock.patch.object(FullShards, "reduce", reducing),
    ):
        yield


def collected(connection: Connection, plan: StepPlan, replicas: int) -> Collected:
    """What one step gathers and reduces."""
    found = Collected([], {"G": 0, "Z": 0})
    with sharded_engine(plan, replicas, "full") as engine, _watched(engine, found):
        engine.step(share_of_batch(engine, 0), 0.01)
    return found


class Evaluated(NamedTuple):
    """A loss, and the letters of the ops that it took."""

    loss: float
    kinds: set[str]


def evaluated(connection: Connection, plan: StepPlan, replicas: int, shard: str) -> Evaluated:
    """An evaluation behind a step of training."""
    with sharded_engine(plan, replicas, shard) as engine:
        engine.step(share_of_batch(engine, 0), 0.01)
        loss = engine.evaluate([share_of_batch(engine, 1), share_of_batch(engine, 2)])
        return Evaluated(loss, {call.op.kind for call in engine.executor.spans.calls})


def held_between_steps(connection: Connection, plan: StepPlan, replicas: int) -> int:
    """Bytes of everything that the engine of this rank keeps."""
    with sharded_engine(plan, replicas, "full") as engine:
        kept = [t for w in engine.weights.values() for t in (w.main, w.value, w.grad)]
        kept += [m for each in engine.optimizers.values() for m in each.moments.values()]
        kept += [buffer for buffers in engine.pool.flat.values() for buffer in buffers]
        return sum({t.data_ptr(): t.nbytes for t in kept}.values())


def live_bytes(connection: Connection, plan: StepPlan, replicas: int) -> dict[str, int]:
    """What is alive on this rank behind a step, by what replicas share."""
    _live(plan, replicas, "none")  # what is made once for all engines
    return {kind: _live(plan, replicas, kind) for kind in SHARDINGS}


def _live(plan: StepPlan, replicas: int, shard: str) -> int:
    """Counted from before there was an engine."""
    with LiveBytes() as meter, sharded_engine(plan, replicas, shard) as engine:
        engine.step(share_of_batch(engine, 0), 0.01)
        gc.collect()
        return meter.level


def trained_with_two_plans(
    connection: Connection, plans: tuple[StepPlan, StepPlan], replicas: int, shard: str
) -> list[Outcome]:
    """Steps whose plans take turns."""
    with sharded_engine(plans[0], replicas, shard) as engine:
        found = []
        for step in range(4):
            engine.use(plans[step % 2])
            found.append(engine.step(share_of_batch(engine, step), 0.01))
        return found
