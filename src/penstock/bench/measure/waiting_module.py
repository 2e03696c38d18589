"""A plain module that waits instead of computing, for PyTorch's runtime in emulated runs."""

from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import barrier

from penstock.bench.measure.emulated_shard import wait
from penstock.bench.measure.torch_pipeline import TorchPipeline
from penstock.run.process.rendezvous import Connection


class WaitingModule(nn.Module):
    """Hands on its input; its forward and its backward take the times that are given."""

    def __init__(self, forward: float, backward: float, spin: float) -> None:
        super().__init__()
        self.seconds = (forward, backward, spin)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _Wait.apply(x, *self.seconds)  # type: ignore[no-untyped-call]
        return out


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: float, backward: float, spin: float) -> Tensor:
        ctx.seconds = (backward, spin)
        wait(forward, spin)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        wait(*ctx.seconds)
        return gradients[0].clone(), None, None, None


def waiting_step(
    connection: Connection, name: str, microbatches: int, unit: float, spin: float
) -> tuple[float, float]:
    """When one of PyTorch's schedules began and ended on this rank; a forward waits one unit, a
    backward two."""
    ranks = connection.world
    module = WaitingModule(unit, 2 * unit, spin)
    rival = TorchPipeline(
        name,
        {connection.rank: module},
        ranks,
        microbatches=microbatches,
        loss=lambda out, wanted: (out - wanted).sum(),
    )
    numbers = torch.zeros(microbatches, 1, 1, requires_grad=True)
    rival.step(numbers, numbers.detach())  # the first step agrees on shapes
    barrier()
    start = perf_counter()
    rival.step(numbers, numbers.detach())
    return start, perf_counter()
