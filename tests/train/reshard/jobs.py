"""What ranks do to save under one layout and to go on under another."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from penstock.arch.config import ModelConfig
from penstock.data.batch import IGNORE, Microbatch
from penstock.run.comm.collective import make_group
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import engine_on
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin, held, settle, to_load, to_save
from penstock.train.checkpoint import Checkpoints
from penstock.train.loop.export import export_engine
from train.reshard.layouts import ALONE, LENGTH, MICROBATCHES, Spread

CPU = torch.device("cpu")
ADAM = AdamW(clip=0.2)
"""Less than the norm of the gradients, so that every step clips."""
RATE, HALF, STEPS = 0.01, 2, 4
"""Learning rate, steps before the checkpoint, and all of them."""


class Went(NamedTuple):
    """How a run went, as one rank knows it."""

    losses: list[float]
    norms: list[float]


class Straight(NamedTuple):
    """A run of one process without a stop: losses and norms of its steps, and its weights."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, Tensor]


def straight(model: ModelConfig, folder: Path) -> Straight:
    """All steps in this process, and a checkpoint between them."""
    with closing(engine_on(Mesh(Grid()), ALONE.plan(model), ADAM, CPU)) as engine:
        begin(engine, 1)
        first = _steps(engine, range(HALF))
        _save(engine, folder, None)
        last = _steps(engine, range(HALF, STEPS))
        weights = {name: block.tensor.clone() for name, (block,) in held(engine).items()}
    return Straight(first.losses + last.losses, first.norms + last.norms, weights)


def saved(connection: Connection, spread: Spread, model: ModelConfig, folder: Path) -> Went:
    """The first steps under a layout, and a checkpoint of them."""
    with _engine(spread, model) as engine:
        begin(engine, 1)
        went = _steps(engine, range(HALF))
        _save(engine, folder, _files_group())
        return went


def resumed(
    connection: Connection, spread: Spread, model: ModelConfig, folder: Path, export: Path
) -> Went:
    """The other steps under a layout, whoever has saved the first, and an export."""
    with _engine(spread, model) as engine:
        begin(engine, 2)
        _load(engine, folder)
        went = _steps(engine, range(HALF, STEPS))
        export_engine(engine, export, torch.float64)
        return went


def exported(
    connection: Connection, spread: Spread, model: ModelConfig, folder: Path, export: Path
) -> None:
    """An export of what somebody has saved."""
    with _engine(spread, model) as engine:
        _load(engine, folder)
        export_engine(engine, export, torch.float64)


@contextmanager
def _engine(spread: Spread, model: ModelConfig) -> Iterator[Engine]:
    mesh = make_mesh(spread.replicas, spread.devices, spread.cell)
    engine = engine_on(mesh, spread.plan(model), ADAM, CPU, shard=spread.shard)
    with closing(engine):
        yield engine


@cache
def _files_group() -> ProcessGroup | None:
    return make_group(backend="gloo") if distributed.is_initialized() else None


def _save(engine: Engine, folder: Path, group: ProcessGroup | None) -> None:
    checkpoints = Checkpoints(folder, group=group)
    checkpoints.save(HALF, to_save(engine), {})
    checkpoints.wait()


def _load(engine: Engine, folder: Path) -> None:
    checkpoints = Checkpoints(folder, group=_files_group())
    found = checkpoints.newest()
    assert found is not None
    checkpoints.load(found, to_load(engine))
    settle(engine, found.step)


def _steps(engine: Engine, steps: range) -> Went:
    outcomes = [engine.step(_share(engine, step), RATE) for step in steps]
    return Went([each.loss for each in outcomes], [each.norm for each in outcomes])


def _share(engine: Engine, step: int) -> list[Microbatch]:
    """This replica's part of the global batch of a step."""
    numbers = torch.Generator().manual_seed(step)
    size = (MICROBATCHES, 1, LENGTH)
    tokens = torch.randint(engine.layout.model.vocabulary, size, generator=numbers)
    labels = tokens.roll(-1, 2)
    labels[..., -1] = IGNORE
    batch = [Microbatch(*each, ((0,),)) for each in zip(tokens, labels)]
    count = MICROBATCHES // engine.mesh.replicas
    return batch[engine.mesh.replica * count :][:count]
