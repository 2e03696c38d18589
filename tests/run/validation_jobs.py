"""Steps whose updates are validated before or after, by the ranks of the tests' crew."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from penstock.data.batch import Microbatch
from penstock.errors import RunError
from penstock.run.comm.mesh import Mesh
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import engine_on
from penstock.run.step.early_copy import EarlyCopy
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.outcome import Outcome
from penstock.run.step.stage_end import StageEnd
from penstock.run.step.state import begin, to_save
from run.jobs import CPU, batch_of, mesh_of


class Disturbed(NamedTuple):
    """A gradient that is changed before its norm is taken."""

    device: int
    step: int
    factor: float


class Request(NamedTuple):
    """Some steps, and what happens in them."""

    plans: tuple[StepPlan, ...]
    """Taken in turn."""
    clip: float
    replicas: int = 1
    shard: str = "none"
    disturbed: Disturbed | None = None
    steps: int = 4
    goes_on: bool = False
    """Whether another step follows one that was refused."""
    host_stages: frozenset[int] = frozenset()
    """Stages whose optimizer state is on the host."""


class Seen(NamedTuple):
    """What a rank has at the end."""

    outcomes: list[Outcome]
    stored: dict[str, Tensor]
    """Weights and moments that it owns."""
    values: dict[int, Tensor]
    """What it computes with."""
    ages: list[int]
    early: int
    """Updates that were made early."""
    taken_back: int
    refusal: str


def both_ways(connection: Connection, request: Request) -> tuple[Seen, Seen]:
    """The same steps, validated before updates and after them."""
    before, after = (trained_with(request, name) for name in ("before", "after"))
    return before, after


def both_places(connection: Connection, request: Request, validation: str) -> tuple[Seen, Seen]:
    """The same steps with all optimizer state on the device, and with some of it on the host."""
    device = request._replace(host_stages=frozenset())
    return trained_with(device, validation), trained_with(request, validation)


def trained_with(request: Request, validation: str) -> Seen:
    plan = request.plans[0]
    mesh = mesh_of(request.replicas, plan.layout.devices, plan.layout.cell)
    adam = AdamW(clip=request.clip, validation=validation, host_stages=request.host_stages)
    engine = engine_on(mesh, plan, adam, CPU, shard=request.shard)
    begin(engine, 1)
    with closing(engine), _counted() as counts, _disturbing(mesh, request) as clock:
        outcomes, refusal = [], ""
        try:
            for step in range(request.steps):
                clock.append(step)
                if len(request.plans) > 1:
                    engine.use(request.plans[step % len(request.plans)])
                outcomes += engine.advance(share_of(engine, step), 0.01 / (step + 1))
            outcomes += engine.finish()
        except RunError as error:
            refusal = error.message
            if request.goes_on:
                clock.append(request.steps)
                outcomes += [*engine.advance(share_of(engine, request.steps), 0.01)]
                outcomes += engine.finish()
        return Seen(outcomes, *held(engine), counts["take"], counts["put_back"], refusal)


def share_of(engine: Engine, step: int) -> list[Microbatch]:
    """This replica's part of the batch of a step."""
    plan, mesh = engine.plan, engine.mesh
    count = len(plan.lengths)
    whole = batch_of(plan, step, mesh.replicas)
    return whole[mesh.replica * count : (mesh.replica + 1) * count]


def held(engine: Engine) -> tuple[dict[str, Tensor], dict[int, Tensor], list[int]]:
    """Weights and moments as a checkpoint has them, what is computed with, counts of updates."""
    stored = {
        f"{name} {number}": block.tensor.clone()
        for name, blocks in to_save(engine).items()
        for number, block in enumerate(blocks)
    }
    values = {stage: weights.value.clone() for stage, weights in engine.weights.items()}
    return stored, values, [optimizer.steps for optimizer in engine.optimizers.values()]


@contextmanager
def _counted() -> Iterator[dict[str, int]]:
    """How often copies are taken, and put back."""
    counts = {"take": 0, "put_back": 0}
    take, put_back = EarlyCopy.take, EarlyCopy.put_back

    def taking(copy: EarlyCopy) -> None:
        counts["take"] += 1
        take(copy)

    def putting(copy: EarlyCopy) -> None:
        counts["put_back"] += copy.taken
        put_back(copy)

    with (
        mock.patch.object(EarlyCopy, "take", taking),
        mock.patch.object(EarlyCopy, "put_back", putting),
    ):
        yield counts


@contextmanager
def _disturbing(mesh: Mesh, request: Request) -> Iterator[list[int]]:
    """Change a gradient in one step, on one device; the list ends with the step under way."""
    clock: list[int] = []
    squares, wanted = StageEnd.squares, request.disturbed

    def changed(end: StageEnd) -> Tensor:
        if wanted and wanted[:2] == (mesh.device, clock[-1]):
            end.weights.grad.mul_(wanted.factor)
        return squares(end)

    with mock.patch.object(StageEnd, "squares", changed):
        yield clock


_CLIPPING = AdamW(clip=0.3, validation="after")


def _after_one(plan: StepPlan) -> dict[str, Tensor]:
    """What a checkpoint has after a step whose update waits for the norm."""
    engine = engine_on(mesh_of(1, plan.layout.devices), plan, AdamW(clip=0.3), CPU)
    begin(engine, 1)
    with closing(engine):
        engine.step(share_of(engine, 0), 0.01)
        return held(engine)[0]


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def saved_at_once(connection: Connection, plan: StepPlan) -> bool:
    """Whether what is stored right after a step that has to be clipped is what it should be."""
    engine = engine_on(mesh_of(1, plan.layout.devices), plan, _CLIPPING, CPU)
    begin(engine, 1)
    with closing(engine):
        engine.advance(share_of(engine, 0), 0.01)
        return _same(held(engine)[0], _after_one(plan))
