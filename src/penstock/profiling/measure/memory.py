"""Memory of a step by what it is for: what is held all the time, and what ops add to it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from penstock.bench.measure.gpu import RATE
from penstock.core.ops import Op
from penstock.data.batch import Microbatch
from penstock.run.execute.observer import Both
from penstock.run.observe.classes import held_bytes
from penstock.run.observe.inspected_step import there_already
from penstock.run.observe.memory_meter import Sample, record_memory
from penstock.run.step.engine import Engine


class StepMemory(NamedTuple):
    """Bytes of one rank."""

    weights: int
    """What is computed with, where it is not the main weights."""
    gradients: int
    optimizer: int
    """Main weights and moments."""
    samples: dict[Op, Sample]
    """What ops added, above all of these, before, while and after each ran."""
    allocated: int
    """The most at once; on a GPU as its allocator counts, of whole steps with their update."""
    reserved: int
    """What the allocator took from the GPU for it."""
    context: int
    """What the process takes of a GPU beside that."""

    @property
    def held(self) -> int:
        return self.weights + self.gradients + self.optimizer

    @property
    def gaps(self) -> float:
        """What lies in gaps of the allocator, for each byte that a step adds."""
        added = self.allocated - self.held
        return max(0.0, (self.reserved - self.allocated) / added) if added > 0 else 0.0

    def record(self) -> dict[str, Any]:
        """What a profile says of the memory."""
        return {
            "weights_bytes": self.weights,
            "gradients_bytes": self.gradients,
            "optimizer_bytes": self.optimizer,
            "step_bytes": self.allocated - self.held,
            "allocated_bytes": self.allocated,
            "reserved_bytes": self.reserved,
            "context_bytes": self.context,
            "gaps": self.gaps,
            "over_time": [
                {"op": str(op), "before": each.before, "peak": each.peak, "after": each.after}
                for op, each in self.samples.items()
            ],
        }


def memory_of(engine: Engine, batch: Sequence[Microbatch]) -> StepMemory:
    """Look at a step with its update, which a host needs room for."""
    on_gpu, executor = engine.device.type == "cuda", engine.executor
    allocated, reserved, context = _of_gpu() if on_gpu else (0, 0, 0)
    weights, gradients, optimizer = held_bytes(engine)
    observer = executor.observer
    try:
        with record_memory(*there_already(engine)) as recorder:
            executor.observer = Both(observer, recorder)
            engine.step(batch, RATE)
    finally:
        executor.observer = observer
    if not on_gpu:
        most = max((sample.peak for sample in recorder.samples.values()), default=0)
        allocated = reserved = weights + gradients + optimizer + most
    sizes = (recorder.samples, allocated, reserved, context)
    return StepMemory(weights, gradients, optimizer, *sizes)


def _of_gpu() -> tuple[int, int, int]:
    """Most bytes that were given out and taken so far, and what the process takes beside."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    context = max(0, total - free - torch.cuda.memory_reserved())
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), context
