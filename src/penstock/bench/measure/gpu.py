"""Steps of a model on a GPU: how much of it is used, what slices cost, and whether time and memory
are as predicted.

One rank trains a whole model, unsliced and in slices; then several ranks share the GPU, each with a
part of the model, to see the memory of schedules beside each other.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import torch

from penstock.bench.measure.gpu_case import GpuCase
from penstock.bench.measure.op_profile import (
    OneByOne,
    predicted_seconds,
    prediction,
    profile_of,
)
from penstock.bench.measure.step_clock import StepTimes, give_back, time_steps
from penstock.plan.memory import footprints
from penstock.run.execute.observer import Quiet
from penstock.run.launch.worker_pool import Crew
from penstock.run.observe.device_workload import workload_of
from penstock.run.process.environment import RankPlace
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine, torch_device
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import entries, settle

RATE = 1e-4


class OurSteps(NamedTuple):
    """What one rank measured."""

    times: StepTimes
    predicted: float
    """Seconds of a step, simulated with ops that were measured alone."""


def has_gpu() -> bool:
    return torch.cuda.is_available()


def first_gpu() -> torch.device:
    """Where one rank alone is measured."""
    return torch_device("cuda", RankPlace())


@contextmanager
def engine_of(case: GpuCase, device: torch.device) -> Iterator[Engine]:
    """An engine with some weights; its memory is free again at the end, whatever happened."""
    with engine_with(case.plan(), device) as engine:
        yield engine


@contextmanager
def engine_with(plan: StepPlan, device: torch.device) -> Iterator[Engine]:
    """The same for any plan of one replica."""
    engine = build_engine(plan, 1, AdamW(), device)
    try:
        fill(engine)
        yield engine
    finally:
        engine.close()
        engine.release()


def fill(engine: Engine) -> None:
    """Random weights made where they are: the host would need most of the time of a case."""
    for entry in entries(engine):
        if entry.main.dim() > 1:
            entry.main.normal_(0, 0.02)
        else:
            entry.main.fill_(1.0)
    settle(engine, 0)


def measure_ours(case: GpuCase, device: torch.device, steps: int, first: int) -> OurSteps:
    """Steps of one rank: some that are left out, one whose ops run alone, and those that count."""
    batch = case.batch()
    with engine_of(case, device) as engine:
        for _ in range(first):
            engine.step(batch, RATE)
        engine.executor.observer = OneByOne(device)
        engine.step(batch, RATE)
        profile = profile_of(engine.executor)
        engine.executor.observer = Quiet()
        times = time_steps(lambda: engine.step(batch, RATE), device, steps, 1)
        predicted = predicted_seconds(engine.executor, profile)
    give_back(device)
    return OurSteps(times, predicted)


def our_row(case: GpuCase, device: torch.device, steps: int, first: int) -> dict[str, Any]:
    """Time, utilisation and memory of our steps, against their predictions."""
    found = measure_ours(case, device, steps, first)
    seconds = median(found.times.seconds)
    return {
        **case.named(),
        "seconds": seconds,
        "utilisation": case.utilisation(seconds, device),
        **prediction(found.predicted, seconds),
        **memory_record(case, [found.times]),
    }


def step_on_gpu(connection: Connection, case: GpuCase, steps: int) -> StepTimes:
    """Train some steps on one of several ranks and say how long each took."""
    device = torch_device("auto", connection.place)
    batch = case.batch()
    with engine_of(case, device) as engine:
        return time_steps(lambda: engine.step(batch, RATE), device, steps, 1)


def measure_together(case: GpuCase, steps: int) -> dict[str, Any]:
    """Several ranks on one GPU: their memory against its prediction."""
    with Crew(case.devices) as crew:
        results = crew.run(step_on_gpu, case, steps)
    return {**case.named(), **memory_record(case, results)}


def memory_record(case: GpuCase, results: Sequence[StepTimes]) -> dict[str, Any]:
    """Predicted and measured bytes of each device; nothing is measured on the host."""
    plan = case.plan()
    workload = workload_of(plan, torch.device("cuda"))
    predicted = [each.total for each in footprints(plan.schedule, workload)]
    found = [result.allocated for result in results]
    errors = [abs(p - m) / m for p, m in zip(predicted, found) if m]
    return {
        "predicted_bytes": predicted,
        "measured_bytes": found,
        "reserved_bytes": [result.reserved for result in results],
        "memory_error": max(errors, default=None),
    }
