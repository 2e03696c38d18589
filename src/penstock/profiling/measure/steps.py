"""Steps of a model on one rank: the time of each op, of the phases, and the memory.

Steps that count run as in training; their ops are marked, which costs next to nothing. Memory is
looked at in a step of its own, because counting every allocation slows a step down.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median, pstdev
from typing import Any

import torch

from penstock.bench.measure.gpu import RATE, engine_with
from penstock.bench.measure.step_clock import give_back
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.data.batch import Microbatch
from penstock.profiling.case import TORCH_NAMES, ProfileCase, three_stages
from penstock.profiling.measure.memory import StepMemory, memory_of
from penstock.profiling.measure.timing import (
    Rounds,
    between,
    kernel_seconds,
    profile_clock,
    seconds_of_calls,
    usual,
)
from penstock.run.execute.spans import Clock
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine

StepOfOps = tuple[float, dict[Op, float]]
"""A step, and each of its ops."""


@dataclass(frozen=True)
class MeasuredSteps:
    """Steps of one plan."""

    each: list[float]
    seconds: float
    """Of a step, as it usually is."""
    ops: dict[Op, float]
    """Medians of all steps, or their mean shares where ranks disturb each other, as long as they
    would be in a step of those seconds."""
    clearing: float
    """Seconds of setting all gradients to 0, which a step begins with."""
    memory: StepMemory

    def record(self, tokens: int) -> dict[str, Any]:
        """What a profile says of its steps."""
        ordered = sorted(self.each)
        return {
            "count": len(ordered),
            "seconds": self.seconds,
            "median": median(ordered),
            "mean": fmean(ordered),
            "deviation": pstdev(ordered),
            "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
            "tokens_per_second": tokens / self.seconds,
        }


def dtype_of(case: ProfileCase) -> torch.dtype:
    """The type that a case computes in."""
    found: torch.dtype = getattr(torch, TORCH_NAMES[case.precision])
    return found


def case_plan(case: ProfileCase, schedule: Schedule) -> StepPlan:
    """One microbatch, cut as the case says."""
    layout = Layout.of(case.model, schedule, case.tokens, dtype=dtype_of(case))
    return StepPlan(layout, schedule, (case.lengths,) * schedule.shape.microbatches)


def batch_of(case: ProfileCase, microbatches: int) -> list[Microbatch]:
    """Random tokens: nothing that is measured depends on what they are."""
    stream = torch.Generator().manual_seed(0)
    size = (microbatches, 1, case.tokens + 1)
    words = torch.randint(0, case.model.vocabulary, size, generator=stream)
    return [Microbatch(row[:, :-1], row[:, 1:], ((0,),)) for row in words]


def profile_steps(case: ProfileCase, device: torch.device, often: Rounds) -> MeasuredSteps:
    """Steps in which every kind of stage and every pass has ops of its own."""
    return steps_of_schedule(case, three_stages(case.slices), device, often)


def steps_of_schedule(
    case: ProfileCase,
    schedule: Schedule,
    device: torch.device,
    often: Rounds,
    clock: Clock | None = None,
) -> MeasuredSteps:
    """Time some steps of a schedule after the first ones, and look at the memory of one more. Where
    copies run beside the main thread, its CPU time is not all: `clock` is another one."""
    batch = batch_of(case, schedule.shape.microbatches)
    with _engine(case, schedule, device) as engine:
        engine.executor.clock = clock or engine.executor.clock
        timed = _timed_steps(engine, batch, often)
        clearing = kernel_seconds(lambda: _clear(engine), device)
        memory = memory_of(engine, batch)
    give_back(device)
    each = [seconds for seconds, _ in timed]
    seconds = usual(each, device, often.ranks)
    return MeasuredSteps(each, seconds, _ops_of(timed, seconds, often.ranks), clearing, memory)


def _ops_of(timed: Sequence[StepOfOps], seconds: float, ranks: int) -> dict[Op, float]:
    """Each op in a step of so many seconds. What disturbs ranks is not the time between their ops:
    each op has its mean share of the steps."""
    ops = timed[0][1]
    if ranks > 1:
        return {op: seconds * fmean(each[op] / step for step, each in timed) for op in ops}
    middle = median(step for step, _ in timed)
    return {op: median(each[op] for _, each in timed) * seconds / middle for op in ops}


def profiled_seconds(case: ProfileCase, device: torch.device, often: Rounds) -> float:
    """The profiled step alone, to see whether the machine is as fast as it was."""
    batch = batch_of(case, 1)
    with _engine(case, three_stages(case.slices), device) as engine:
        timed = _timed_steps(engine, batch, often)
    give_back(device)
    return usual((seconds for seconds, _ in timed), device, often.ranks)


@contextmanager
def _engine(case: ProfileCase, schedule: Schedule, device: torch.device) -> Iterator[Engine]:
    with engine_with(case_plan(case, schedule), device) as engine:
        engine.executor.clock = profile_clock(device)
        yield engine


def _timed_steps(engine: Engine, batch: Sequence[Microbatch], often: Rounds) -> list[StepOfOps]:
    for _ in range(often.first):
        engine.step(batch, RATE)
    if engine.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    return [_timed(engine, batch) for _ in range(often.steps)]


def _timed(engine: Engine, batch: Sequence[Microbatch]) -> StepOfOps:
    seconds = seconds_of_calls(lambda: engine.step(batch, RATE), engine.executor.clock)
    spans = engine.executor.spans
    marks = zip(spans.calls, spans.start, spans.end)
    return seconds, {call.op: between(start, end) for call, start, end in marks}


def _clear(engine: Engine) -> None:
    for weights in engine.weights.values():
        weights.grad.zero_()
