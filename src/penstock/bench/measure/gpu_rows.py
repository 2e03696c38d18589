"""Our steps and those of the compiled model, one after the other in one process."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch

from penstock.bench.measure.compiled_step import Making
from penstock.bench.measure.gpu import our_row
from penstock.bench.measure.gpu_baseline import baseline_row
from penstock.bench.measure.gpu_case import GpuCase
from penstock.bench.measure.kernel_trace import breakdown_row
from penstock.bench.measure.step_clock import unless_memory_ends

NO_MEMORY = "out of memory"
_NO_STEPS = dict.fromkeys(
    ("seconds", "utilisation", "predicted_seconds", "prediction_error", "memory_error")
)
_NO_BASELINE = dict.fromkeys(("baseline_seconds", "baseline_utilisation", "baseline_bytes"))


def compared_rows(
    cases: Sequence[GpuCase], making: Making, steps: int, first: int
) -> Iterator[dict[str, Any]]:
    """A row for each case; those of one model and length share a baseline, measured before them."""
    for _, some in groupby(cases, lambda case: (case.model, case.tokens, case.transforms)):
        same = list(some)
        theirs = _baseline(same[0], making, steps, first)
        for case in same:
            ours = _ours(case, making, steps, first)
            yield {**ours, **theirs, "ratio": ratio(ours, theirs)}


def ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> float | None:
    """Our seconds over those of the baseline, where both sides have steps."""
    if ours["seconds"] is None or theirs["baseline_seconds"] is None:
        return None
    return float(ours["seconds"] / theirs["baseline_seconds"])


def breakdown_rows(
    cases: Sequence[GpuCase], device: torch.device, first: int
) -> Iterator[dict[str, Any]]:
    """Where the time of our step goes in each case."""
    for case in cases:
        row = unless_memory_ends(partial(breakdown_row, case, device, first), device)
        yield {**case.named(), "reason": NO_MEMORY} if row is None else {**row, "reason": None}


def _baseline(case: GpuCase, making: Making, steps: int, first: int) -> dict[str, Any]:
    row = unless_memory_ends(lambda: baseline_row(case, making, steps, first), making.device)
    if row is None:
        return {**_NO_BASELINE, "baseline_reason": NO_MEMORY}
    return {**row, "baseline_reason": None}


def _ours(case: GpuCase, making: Making, steps: int, first: int) -> dict[str, Any]:
    row = unless_memory_ends(lambda: our_row(case, making.device, steps, first), making.device)
    if row is None:
        return {**case.named(), **_NO_STEPS, "reason": NO_MEMORY}
    return {**row, "reason": None}
