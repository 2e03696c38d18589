"""Steps of a model on a GPU: how much of it is used, what slices cost, and whether memory is as
predicted.

One rank trains a whole model, unsliced and in slices; then several ranks share the GPU, each with a
part of the model, to see the memory of schedules beside each other. Random tokens do: nothing here
depends on what they are.
"""

from collections.abc import Sequence
from dataclasses import replace
from gc import collect
from statistics import median
from typing import Any, NamedTuple

import torch

from penstock.arch.config import ModelConfig, model
from penstock.core.schedule import Schedule
from penstock.cost.workload import Workload
from penstock.data.batch import Microbatch
from penstock.plan.memory import footprints
from penstock.plan.slices import align, equal_flops_of_model
from penstock.run.launch.worker_pool import Crew
from penstock.run.observe.utilisation import model_flops, peak_flops
from penstock.run.process.environment import RankPlace
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine, torch_device
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.schedules import build


def has_gpu() -> bool:
    return torch.cuda.is_available()


class GpuCase(NamedTuple):
    """A model, a length, and a schedule over some devices."""

    model: str
    tokens: int
    schedule: str
    devices: int = 1
    microbatches: int = 1
    slices: int = 1
    dtype: str = "bfloat16"

    def config(self) -> ModelConfig:
        return replace(model(self.model), element_bytes=getattr(torch, self.dtype).itemsize)

    def built(self) -> Schedule:
        return build(
            self.schedule,
            devices=self.devices,
            microbatches=self.microbatches,
            slices=self.slices if self.slices > 1 else None,
        )

    def plan(self) -> StepPlan:
        cut: tuple[int, ...] = (self.tokens,)
        if self.slices > 1:
            cut = align(equal_flops_of_model(self.config(), self.tokens, self.slices))
        lengths = (cut,) * self.microbatches
        schedule, dtype = self.built(), getattr(torch, self.dtype)
        layout = Layout.of(self.config(), schedule, self.tokens, dtype=dtype)
        return StepPlan(layout, schedule, lengths)


class RankResult(NamedTuple):
    """What one rank measured."""

    seconds: list[float]
    allocated: int
    """Most bytes that the allocator gave out, weights and all."""
    reserved: int
    """Most bytes that it took from the GPU."""


def step_on_gpu(connection: Connection, case: GpuCase, steps: int) -> RankResult:
    """Train some steps and say how long each took."""
    device = torch_device("auto", connection.place)
    return measure_steps(case, device, steps)


def measure_steps(case: GpuCase, device: torch.device, steps: int) -> RankResult:
    """The steps of one rank; the first one, which finds kernels and memory, is left out."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    engine = build_engine(case.plan(), 1, AdamW(), device)
    begin(engine, 0)
    batch = random_batch(case)
    seconds = [_timed(engine, batch) for _ in range(steps + 1)]
    engine.close()
    result = RankResult(
        seconds[1:], torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    )
    # Ranks that share the GPU come next, and this process would keep what it no longer needs.
    del engine
    collect()
    torch.cuda.empty_cache()
    return result


def random_batch(case: GpuCase) -> list[Microbatch]:
    stream = torch.Generator().manual_seed(0)
    size, vocabulary = (1, case.tokens + 1), case.config().vocabulary
    found = []
    for _ in range(case.microbatches):
        words = torch.randint(0, vocabulary, size, generator=stream)
        found.append(Microbatch(words[:, :-1], words[:, 1:], ((0,),)))
    return found


def _timed(engine: Engine, batch: Sequence[Microbatch]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    engine.step(batch, 1e-4)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def measure_alone(case: GpuCase, steps: int) -> dict[str, Any]:
    """One rank: time, utilisation, and memory against its prediction."""
    device = torch_device("cuda", RankPlace())
    result = measure_steps(case, device, steps)
    seconds = median(result.seconds)
    flops = model_flops(case.config(), [case.tokens] * case.microbatches)
    peak = peak_flops(device)
    return {
        **case._asdict(),
        "seconds": seconds,
        "utilisation": flops / seconds / peak if peak else None,
        **memory_record(case, [result]),
    }


def measure_together(case: GpuCase, steps: int) -> dict[str, Any]:
    """Several ranks on one GPU: their memory against its prediction."""
    with Crew(case.devices) as crew:
        results = crew.run(step_on_gpu, case, steps)
    return {**case._asdict(), **memory_record(case, results)}


def memory_record(case: GpuCase, results: Sequence[RankResult]) -> dict[str, Any]:
    """Predicted and measured bytes of each device."""
    plan = case.plan()
    workload = Workload(plan.layout.model, plan.lengths, tuple(map(len, plan.layout.split)))
    predicted = [each.total for each in footprints(plan.schedule, workload)]
    found = [result.allocated for result in results]
    return {
        "predicted_bytes": predicted,
        "measured_bytes": found,
        "reserved_bytes": [result.reserved for result in results],
        "memory_error": max(abs(p - m) / m for p, m in zip(predicted, found)),
    }
