"""What the ranks of the tests' crew do with optimizer state that replicas share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, distributed

from penstock.data.batch import Microbatch
from penstock.run.comm import dealt_ranges
from penstock.run.comm.dealt_ranges import gather_ranges, scatter_sum
from penstock.run.observe.memory_meter import LiveBytes
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import engine_on
from penstock.run.step.engine import Engine
from penstock.run.step.full_sharding import FullShards
from penstock.run.step.optimizer import AdamW
from penstock.run.step.outcome import Outcome
from penstock.run.step.state import begin, entries, settle, to_load, to_save
from penstock.train.checkpoint import Checkpoints
from run.jobs import CPU, batch_of, mesh_of

CLIP = 0.2
"""Less than the norm of the plans' gradients, so that every step clips."""


@contextmanager
def sharded_engine(plan: StepPlan, replicas: int, shard: str, sharers: int = 0) -> Iterator[Engine]:
    """The engine of this rank, with its initial weights."""
    mesh = mesh_of(replicas, plan.layout.devices)
    engine = engine_on(mesh, plan, AdamW(clip=CLIP), CPU, shard=shard, shard_ranks=sharers)
    begin(engine, 1)
    try:
        yield engine
    finally:
        engine.close()


class Piece(NamedTuple):
    """What a rank owns of one parameter after training, one element behind the other."""

    stage_name: tuple[int, str]
    inside: slice
    main: Tensor
    moments: dict[str, Tensor]


class SharedRun(NamedTuple):
    """Some steps of training, as one rank has seen them."""

    outcomes: list[Outcome]
    values: dict[int, Tensor]
    """What is computed with, by stage."""
    pieces: list[Piece]
    gradients: dict[tuple[int, str], Tensor]
    """Of another batch, after the steps."""


def trained_with(
    connection: Connection,
    plan: StepPlan,
    replicas: int,
    shard: str,
    without: str = "",
    steps: int = 3,
    sharers: int = 0,
) -> SharedRun:
    """Some steps, each replica with its share of the batches; `without` one of the collectives."""
    with sharded_engine(plan, replicas, shard, sharers) as engine, _left_out(without):
        batches = [share_of_batch(engine, step) for step in range(steps + 1)]
        outcomes = [engine.step(batch, 0.01) for batch in batches[:-1]]
        values = {stage: _values(engine, stage) for stage in engine.weights}
        pieces = [*_pieces(engine)]
        outcomes.append(engine.gradients(batches[-1]))
        return SharedRun(outcomes, values, pieces, _gradients(engine))


def _values(engine: Engine, stage: int) -> Tensor:
    """What is computed with, whole."""
    weights = engine.weights[stage]
    if not isinstance(engine.sharding, FullShards):
        return weights.value.clone()
    whole = weights.value.new_empty(weights.layout.stored)
    engine.sharding.fetch(weights, whole, engine.mesh)
    return whole


@contextmanager
def _left_out(name: str) -> Iterator[None]:
    if not name:
        yield
        return
    with mock.patch(f"penstock.run.step.sharding.{name}"):
        yield


def _pieces(engine: Engine) -> Iterator[Piece]:
    names = [(stage, name) for stage, w in engine.weights.items() for name in w.layout.parts]
    for key, entry in zip(names, entries(engine)):
        moments = {name: moment.reshape(-1).clone() for name, moment in entry.moments.items()}
        yield Piece(key, entry.own.inside, entry.main.reshape(-1).clone(), moments)


def _gradients(engine: Engine) -> dict[tuple[int, str], Tensor]:
    return {
        (stage, name): grad.clone()
        for stage, weights in engine.weights.items()
        for name, grad in weights.named(engine.whole_gradients[stage]).items()
    }


def stored(connection: Connection, plan: StepPlan, replicas: int, shard: str, folder: Path) -> None:
    """Two steps, and a checkpoint of them."""
    with sharded_engine(plan, replicas, shard) as engine:
        for step in range(2):
            engine.step(share_of_batch(engine, step), 0.01)
        checkpoints = Checkpoints(folder)
        checkpoints.save(2, to_save(engine), {})
        checkpoints.wait()


def resumed(
    connection: Connection, plan: StepPlan, replicas: int, shard: str, folder: Path
) -> Outcome:
    """Two steps behind a checkpoint; the last of them."""
    with sharded_engine(plan, replicas, shard) as engine:
        checkpoints = Checkpoints(folder)
        found = checkpoints.newest()
        assert found is not None
        checkpoints.load(found, to_load(engine))
        settle(engine, found.step)
        engine.step(share_of_batch(engine, 2), 0.01)
        return engine.step(share_of_batch(engine, 3), 0.01)


def share_of_batch(engine: Engine, step: int) -> list[Microbatch]:
    """This replica's part of a global batch."""
    count = len(engine.plan.lengths)
    first = engine.mesh.replica * count
    return batch_of(engine.plan, step, engine.mesh.replicas)[first : first + count]


class Counted(NamedTuple):
    """Bytes that a rank has sent other replicas in one step, and the elements of its stages."""

    sums: int
    gathers: int
    elements: int


def bytes_sent(connection: Connection, plan: StepPlan, replicas: int) -> Counted:
    """What a step moves between replicas beside the count of labels and the norm."""
    found = dict.fromkeys(("scatter_sum", "gather_ranges"), 0)
    with sharded_engine(plan, replicas, "optimizer") as engine:
        with _counting("scatter_sum", found), _counting("gather_ranges", found):
            engine.step(share_of_batch(engine, 0), 0.01)
        elements = sum(weights.layout.stored for weights in engine.weights.values())
    return Counted(found["scatter_sum"], found["gather_ranges"], elements)


@contextmanager
def _counting(name: str, found: dict[str, int]) -> Iterator[None]:
    """Count what is sent by all calls of a function."""
    whole, send = getattr(dealt_ranges, name), distributed.isend

    def sending(tensor: Tensor, **where: Any) -> Any:
        found[name] += tensor.nbytes
        return send(tensor, **where)

    def counted(*given: Any) -> None:
        with mock.patch.object(distributed, "isend", sending):
            whole(*given)

    with mock.patch(f"penstock.run.step.sharding.{name}", counted):
        yield


class Dealt(NamedTuple):
    """A tensor whose ranges were summed and gathered."""

    summed: list[float]
    gathered: list[float]


def dealt(connection: Connection, cuts: list[int], message: int) -> Dealt:
    """Numbers of which each rank has others, in messages of so many elements."""
    group = distributed.group.WORLD
    tensor = torch.arange(12, dtype=torch.float64) + 100 * connection.rank
    with mock.patch.object(dealt_ranges, "MESSAGE", message):
        scatter_sum(tensor, cuts, group)
        summed = tensor[cuts[connection.rank] : cuts[connection.rank + 1]].tolist()
        gather_ranges(tensor, cuts, group)
    return Dealt(summed, tensor.tolist())


def dealt_in_calls(connection: Connection, cuts: list[int]) -> Dealt:
    """The same by the collectives that NCCL has, which gloo has too for ranges of one length."""
    group, rank = distributed.group.WORLD, connection.rank
    tensor = torch.arange(12, dtype=torch.float64) + 100 * rank
    dealt_ranges._scatter_by_nccl(tensor, cuts, group)
    summed = tensor[cuts[rank] : cuts[rank + 1]].tolist()
    if dealt_ranges.equal_ranges(cuts):
        dealt_ranges._gather_by_nccl(tensor, cuts, group)
    return Dealt(summed, tensor.tolist())


class Room(NamedTuple):
    """Bytes of a rank: what it holds all the time, and the most that the end of a step adds."""

    weights: int
    optimizer: int
    end: int


def room_of(
    connection: Connection, plan: StepPlan, replicas: int, shard: str = "optimizer"
) -> Room:
    """What the engine of this rank has, and what its stages need at the end of a step."""
    with sharded_engine(plan, replicas, shard) as engine:
        flat = [*engine.weights.values()]
        moments = [m.nbytes for o in engine.optimizers.values() for m in o.moments.values()]
        kept = sum(w.main.nbytes + w.grad.nbytes for w in flat) + sum(moments)
        narrow = sum(w.value.nbytes for w in flat if w.value is not w.main)
        with LiveBytes() as meter:
            meter.ignore(*(b for w in flat for b in (w.main, w.value, w.grad)))
            for weights, optimizer in zip(flat, engine.optimizers.values()):
                meter.ignore(*optimizer.moments.values())
                engine.sharding.reduce(weights, weights.grad, engine.mesh)
                optimizer.update(0.0, 0.5)
                engine.sharding.gather(weights, engine.mesh)
        return Room(narrow, kept, meter.peak)
