"""What a constant and a factor leave over, for slices of each length.

Ops of short slices are not shorter by the same share as their kernels: tensors of a few hundred KiB
stay in a cache and in memory that the process has, larger ones are new pages each time. One
straight line through all sizes is wrong at its ends. So the profiled step is run with whole
sequences and with slices of a quarter too, and each step keeps the ratio between what it took and
what the line says. An estimate takes what lies between the nearest lengths. What depends on tokens
before a slice is attention, which is measured at several of them, one by one.

All slices of a step have one ratio: that of a single op is noise of some percent on a machine that
others use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from penstock.profiling.case import ProfileCase
from penstock.profiling.in_step import PASS_OF, Column, StepFactors, StepOps
from penstock.profiling.sizes import FEWEST_TOKENS

SHORTER = 4
"""Times that slices are shorter in the step that shows what short ones take."""
MOST_CORRECTED = 2.0
"""A larger ratio, or less than its inverse, is noise."""
ATTENDED = {"F": "attention forward", "I": "attention backward"}


def other_cuts(case: ProfileCase) -> list[ProfileCase]:
    """The same sequence whole, and in shorter slices, as far as these are not too short."""
    shorter = SHORTER * case.slices
    cuts = [1] * (case.slices > 1) + [shorter] * (case.tokens // shorter >= FEWEST_TOKENS)
    return [replace(case, slices=count) for count in cuts]


def correction_rows(steps: Sequence[StepOps], factors: StepFactors) -> list[dict[str, Any]]:
    """The ratio of each step, at the mean length of its slices."""
    return [
        {"part": part, "tokens": step.case.tokens / step.case.slices, "factor": ratio}
        for step in steps
        for part, ratio in _ratios(step, factors)
    ]


def _ratios(step: StepOps, factors: StepFactors) -> Iterator[tuple[str, float]]:
    for kind, passed in PASS_OF.items():
        names = [passed, *([ATTENDED[kind]] if kind in ATTENDED else [])]
        yield passed, _against(step.layer_columns(kind), factors, passed, names)
    yield "head", _against(step.head_columns(), factors, "head", ["head"])


def _against(
    columns: tuple[Column, list[Column]], factors: StepFactors, fixed: str, names: Sequence[str]
) -> float:
    """Measured over fitted, of all slices together."""
    measured, alone = columns
    fitted = len(measured) * factors.fixed[fixed] + sum(
        factors.in_step[name] * float(column.sum()) for name, column in zip(names, alone)
    )
    return min(MOST_CORRECTED, max(1 / MOST_CORRECTED, float(measured.sum()) / fitted))
