"""Steps of the compiled model on the same work as a case of ours."""

from statistics import median
from typing import Any

import torch

from penstock.bench.measure.compiled_model import (
    CallBlock,
    keep_activations,
    recompute_activations,
)
from penstock.bench.measure.compiled_step import CompiledStep, Making
from penstock.bench.measure.gpu_case import GpuCase
from penstock.bench.measure.step_clock import StepTimes, give_back, time_steps

CALLS: dict[tuple[str, ...], CallBlock] = {
    (): keep_activations,
    ("recompute_all",): recompute_activations,
}
"""How its blocks are called where our schedule has these transforms."""


def measure_baseline(case: GpuCase, making: Making, steps: int, first: int) -> StepTimes:
    """Steps on the tokens of the case; the compiler forgets them, as the next length is compiled
    for itself and not for any length."""
    try:
        return _timed(case, making, steps, first)
    finally:
        torch._dynamo.reset()
        give_back(making.device)


def _timed(case: GpuCase, making: Making, steps: int, first: int) -> StepTimes:
    model = CompiledStep(case.config(), case.words(), making, call=CALLS[case.transforms])
    return time_steps(model.step, making.device, steps, first)


def baseline_row(case: GpuCase, making: Making, steps: int, first: int) -> dict[str, Any]:
    """Time, utilisation and memory of the baseline."""
    found = measure_baseline(case, making, steps, first)
    seconds = median(found.seconds)
    return {
        "baseline_seconds": seconds,
        "baseline_utilisation": case.utilisation(seconds, making.device),
        "baseline_bytes": found.allocated,
    }
