"""PyTorch's pipeline runtime on modules of ours, for comparisons in one run.

Which of its schedules is run is data: a class of torch.distributed.pipelining by name.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from penstock.bench.measure.cpu_meter import CpuMeter
from penstock.errors import RunError, nearest

TRANSFER_CALLS = ("_batch_p2p", "_wait_batch_p2p")
"""Functions of its runtime that post transfers and wait for them."""


class TorchPipeline:
    """One of PyTorch's schedules over this rank's stages."""

    def __init__(
        self,
        name: str,
        modules: Mapping[int, nn.Module],
        stages: int,
        *,
        microbatches: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        group: ProcessGroup | None = None,
    ) -> None:
        from torch.distributed.pipelining import PipelineStage

        kind = schedule_class(name)
        self.first, self.last = 0 in modules, stages - 1 in modules
        parts = [
            PipelineStage(module, stage, stages, torch.device("cpu"), group=group)
            for stage, module in sorted(modules.items())
        ]
        single = not issubclass(kind, _multi())
        held: Any = parts[0] if single else parts
        # Gradients are those of the loss as it is: the loss has its scale already.
        self._schedule = kind(held, microbatches, loss_fn=loss, scale_grads=False)

    def step(self, tokens: Tensor, labels: Tensor) -> list[Tensor]:
        """Forward and backward of one batch; the losses of the microbatches on the last rank."""
        losses: list[Tensor] = []
        args = (tokens,) if self.first else ()
        more: dict[str, Any] = {"target": labels, "losses": losses} if self.last else {}
        self._schedule.step(*args, **more)
        return losses


def schedule_class(name: str) -> Any:
    """The class of that name."""
    from torch.distributed import pipelining

    known = [found for found in pipelining.__all__ if found.startswith("Schedule")]
    if name not in known:
        raise RunError(f"this PyTorch has no {name}", hint=nearest(name, known))
    return getattr(pipelining, name)


def torch_stages(name: str, rank: int, ranks: int, per_rank: int) -> list[int]:
    """The stages of a rank: round and round, or in a V where the schedule wants one."""
    vee = {"ScheduleZBVZeroBubble", "ScheduleDualPipeV"}
    if name in vee:
        return [rank, 2 * ranks - 1 - rank]
    return [turn * ranks + rank for turn in range(per_rank)]


@contextmanager
def metered_transfers(meter: CpuMeter) -> Iterator[None]:
    """Count its posting and waiting, with the bookkeeping of the functions that do it."""
    from torch.distributed.pipelining import schedules

    with ExitStack() as stack:
        for name in TRANSFER_CALLS:
            call = meter.wrap(getattr(schedules, name))
            stack.enter_context(mock.patch.object(schedules, name, call))
        yield


def _multi() -> Any:
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti

    return PipelineScheduleMulti
