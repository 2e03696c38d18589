"""What a runtime costs beside the work: CPU of the main thread for each microbatch and stage.

Ours and PyTorch's run the same tiny modules over the same ranks in one go. Counted is the CPU time
of a step on its main thread (`time.thread_time`), without what is spent inside the module, the
loss, autograd's `backward` and the posting and waiting for transfers. What either side does to a
batch before its loop is counted: ours makes pieces of microbatches, PyTorch's splits a tensor.
"""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed import group
from torch.nn import functional

from penstock.bench.measure.cpu_meter import (
    CpuMeter,
    MeteredModule,
    MeteredTransport,
    metered_backward,
)
from penstock.bench.measure.torch_pipeline import TorchPipeline, metered_transfers
from penstock.core.schedule import Schedule
from penstock.data.batch import Microbatch
from penstock.lower import lower_for_running
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.stages.module_stage import ModuleStage
from penstock.run.comm.gloo import Gloo
from penstock.run.execute.boundary import Boundary
from penstock.run.execute.executor import Executor, by_stage
from penstock.run.process.rendezvous import Connection

WIDTH, TOKENS = 8, 4
WARM_UP = 2
"""Steps before the clock: the first ones create connections and load code."""


class HostTime(NamedTuple):
    """One rank's figures."""

    microseconds: float
    """Median over the steps, for each microbatch and stage."""
    loss: float
    """Of the last step; 0 where no loss is met."""


class HostBatch(NamedTuple):
    """Numbers to train on, [microbatches, tokens, width], and where the model should get."""

    x: Tensor
    wanted: Tensor

    @classmethod
    def random(cls, microbatches: int) -> "HostBatch":
        numbers = torch.Generator().manual_seed(1)
        size = (2, microbatches, TOKENS, WIDTH)
        return cls(*torch.randn(size, generator=numbers))


def module_of(stage: int) -> nn.Module:
    """The same tiny weights on both sides."""
    torch.manual_seed(stage)
    return nn.Linear(WIDTH, WIDTH)


def distance(out: Tensor, wanted: Tensor) -> Tensor:
    return functional.mse_loss(out, wanted, reduction="sum")


def host_time_of_ours(connection: Connection, schedule: Schedule, steps: int) -> HostTime:
    """A schedule with one stage for each rank, run by the executor."""
    rank, microbatches = connection.rank, schedule.shape.microbatches
    meter = CpuMeter()
    loss = meter.wrap(distance) if rank == connection.world - 1 else None
    stage = ModuleStage(MeteredModule(module_of(rank), meter), loss)
    assert group.WORLD is not None
    transport = Gloo(group.WORLD)
    executor = Executor(
        lower_for_running(schedule),
        rank,
        by_stage({rank: stage}),
        transport=MeteredTransport(transport, meter),
        boundary=Boundary((WIDTH,) * (connection.world - 1), torch.float32, torch.device("cpu")),
    )
    batch = HostBatch.random(microbatches)
    losses: list[Tensor] = []

    def step() -> None:
        losses[:] = executor.step(_pieces(_microbatches(batch)))

    try:
        return _measured(meter, step, losses, microbatches, steps)
    finally:
        transport.close()


def theirs(connection: Connection, name: str, microbatches: int, steps: int) -> HostTime:
    """One of PyTorch's schedules with one stage for each rank."""
    rank, ranks = connection.rank, connection.world
    meter = CpuMeter()
    module = MeteredModule(module_of(rank), meter)
    rival = TorchPipeline(
        name, {rank: module}, ranks, microbatches=microbatches, loss=meter.wrap(distance)
    )
    batch = HostBatch.random(microbatches)
    losses: list[Tensor] = []

    def step() -> None:
        losses[:] = rival.step(batch.x, batch.wanted)

    with metered_transfers(meter):
        return _measured(meter, step, losses, microbatches, steps)


def _measured(
    meter: CpuMeter, step: Callable[[], None], losses: list[Tensor], microbatches: int, steps: int
) -> HostTime:
    with metered_backward(meter):
        for _ in range(WARM_UP):
            step()
        times = [meter.outside(step) for _ in range(steps)]
    return HostTime(median(times) / 1e3 / microbatches, sum(loss.item() for loss in losses))


def _microbatches(batch: HostBatch) -> list[Microbatch]:
    rows = zip(batch.x.unsqueeze(1), batch.wanted.unsqueeze(1))
    return [Microbatch(x, wanted, ((0,),)) for x, wanted in rows]


def _pieces(batch: list[Microbatch]) -> list[Piece]:
    return [pieces_of(mb, item, (TOKENS,), 1.0)[0] for mb, item in enumerate(batch)]
