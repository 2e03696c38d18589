"""What a step makes of kernels: how much longer ops take than their kernels one by one.

A step of the profiled model has ops of a stage of layers alone, of one with the embedding and of
one with the head. A layer of slice s takes

    F    c + a x (products and moved bytes, one by one) + b x (attention, one by one)

Slices differ in the share of attention. On a host a step with a quarter of the tokens is run too:
it differs in size. So a, b and c follow by least squares of relative errors. I is alike, W is
products alone. What the first stage takes longer than its layers is the embedding, and the last one
the head. A whole sequence takes less than these factors say, as it keeps no keys for others: it is
run too, and each pass has a ratio. Seconds of a step that belong to no op lie between ops.

A few slices hardly tell a, b and c apart, and errors of one per cent would become factors of a half
and of two. So factors that differ count as errors too (`ALIKE`). A GPU has no c: its host is ahead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from penstock.cluster.measured import FACTORS
from penstock.core.ops import Op
from penstock.cost.workload import Workload
from penstock.estimate.measured_times import ProfiledTimes
from penstock.estimate.update_times import UpdateTimes
from penstock.profiling.case import KINDS_OF_STAGE, ProfileCase, three_stages
from penstock.profiling.sizes import whole_unit

FIRST, MIDDLE, LAST = range(len(KINDS_OF_STAGE))
LAYERS_ALONE = {"F": (MIDDLE, LAST), "I": (MIDDLE,), "W": (FIRST, MIDDLE, LAST)}
"""Stages whose ops have layers and nothing else. The loss is in the backward of the last one, and
so is the weight gradient of the head."""
PASS_OF = {"F": "forward", "I": "inputs", "W": "weights"}
Column = np.ndarray[Any, np.dtype[np.float64]]
"""Seconds of each slice."""
StepColumns = tuple[Column, list[Column]]
"""Measured, and the kernels one by one."""
UNKNOWN_RATE = 1.0
"""In place of rates that a step is still to say."""
ALIKE = 0.05
"""Weight of the square of what a factor differs by from all kernels together, where the square of
the relative error of a slice weighs 1."""


@dataclass(frozen=True)
class StepFactors:
    """What follows from a profiled step."""

    in_step: dict[str, float]
    fixed: dict[str, float]
    whole: dict[str, float]
    """Seconds of a whole sequence for each that it would take by the others, by pass."""
    rates: dict[str, float]
    between: float


@dataclass(frozen=True)
class StepOps:
    """Ops of a profiled step, and what their kernels take one by one."""

    case: ProfileCase
    times: ProfiledTimes
    """With factors of 1."""
    ops: Mapping[Op, float]
    seconds: float
    """Of the step."""
    clearing: float

    def layers(self, stage: int) -> int:
        return self._workload.layers[stage]

    @property
    def _workload(self) -> Workload:
        schedule = three_stages(self.case.slices)
        return Workload.of(schedule.shape, self.case.model, self.case.lengths)

    def seconds_of(self, kind: str, stage: int) -> Column:
        """Of each slice."""
        slices = range(self.case.slices)
        return np.array([self.ops[Op(kind, stage, 0, slice)] for slice in slices])

    def _layer(self, kind: str) -> Column:
        """Of one layer, from all stages that have nothing else in such ops."""
        stages = LAYERS_ALONE[kind]
        whole = np.sum([self.seconds_of(kind, stage) for stage in stages], 0)
        return np.asarray(whole / sum(map(self.layers, stages)))

    def _alone(self, passed: str) -> Column:
        """Kernels of a layer but attention, one by one."""
        return np.array([self.times.parts(unit).of(passed) for unit in self.units])

    @property
    def units(self) -> list[Any]:
        """The slices."""
        starts = np.cumsum((0, *self.case.lengths)).tolist()
        return [whole_unit(count, past) for count, past in zip(self.case.lengths, starts)]

    def layer_columns(self, kind: str) -> StepColumns:
        """Seconds of a layer in ops of a kind, and what its kernels take one by one."""
        passed = PASS_OF[kind]
        columns = [self._alone(passed)]
        if passed != "weights":
            columns.append(self.attended(LAYERS_ALONE[kind])[int(passed == "inputs")])
        return self._layer(kind), columns

    def attended(self, stages: Sequence[int]) -> tuple[Column, Column]:
        """Attention of a layer of some stages, forward and backward, one by one: the mean of those
        that see all keys and those that have a window."""
        work, chosen = self._workload, [*stages]
        near = work.windowed[chosen].sum() / (work.unbounded + work.windowed)[chosen].sum()
        windowed = [
            unit._replace(pairs=pairs / 2)
            for unit, pairs in zip(self.units, work.window_half_pairs.tolist())
        ]
        every, limited = (
            replace(self.times, part=replace(self.times.part, window=window, window_pattern=()))
            for window in (None, self.case.model.window)
        )
        whole = np.array([every.attention_seconds(unit) for unit in self.units])
        part = np.array([limited.attention_seconds(unit) for unit in windowed])
        forward, backward = (whole + near * (part - whole)).T
        return forward, backward

    def head_columns(self) -> StepColumns:
        """What the last stage takes next to its layers, and its kernels one by one."""
        beside = self.seconds_of("I", LAST) - self._layer("I") * self.layers(LAST)
        flops = 3 * self.case.model.vocabulary * self.case.model.head.flops_per_logit
        lengths = self.case.lengths
        alone = np.array([self.times.head_alone(count, flops * count, "B") for count in lengths])
        return np.maximum(beside, 0.1 * alone), [alone]

    def rates(self) -> dict[str, float]:
        """Bytes per second of what is measured in a step alone."""
        lookups = {f"lookup {PASS_OF[kind]}": self._lookup(kind) for kind in "FI"}
        return lookups | self._ends()

    @property
    def between(self) -> float:
        """Seconds between two ops."""
        on_batch = sum(op.kind in PASS_OF for op in self.ops)
        rest = self.seconds - sum(self.ops.values()) - self.clearing
        return max(0.0, rest / on_batch)

    def _lookup(self, kind: str) -> float:
        """Bytes per second of the embedding; where the time is lost in others, as of a sum."""
        rows = {"F": 2, "I": 3}[kind] * self.case.model.embedding.row_bytes
        beside = self.seconds_of(kind, FIRST) - self._layer(kind) * self.layers(FIRST)
        least = self.times.kernels.moving["sum", "forward"].largest
        seconds = float(beside.sum())
        moved = rows * self.case.tokens
        return moved / seconds if seconds > moved / least else least

    def _ends(self) -> dict[str, float]:
        """Bytes per second of the end of a step: the norm of the gradients, with setting them to 0
        for the next step, and the update."""
        schedule = three_stages(self.case.slices)
        update = UpdateTimes(self._workload, schedule.shape, 1, lambda kind: UNKNOWN_RATE)
        found = {}
        for name, kinds in (("norm", "ZV"), ("update", "UA")):
            ended = [(op, seconds) for op, seconds in self.ops.items() if op.kind in kinds]
            took = sum(seconds for _, seconds in ended) + self.clearing * (name == "norm")
            kind = kinds[-1] if name == "norm" else kinds[0]
            moved = sum(update.seconds(kind, stage) for stage in range(len(KINDS_OF_STAGE)))
            found[name] = moved / took
        return found


def factors_of(steps: Sequence[StepOps], constant: bool) -> StepFactors:
    """Of steps of one model, the profiled one first; with a constant where the host computes."""
    sliced = [step for step in steps if step.case.slices > 1] or steps
    whole = [step for step in steps if step.case.slices == 1] or steps
    in_step, fixed, ratios = dict[str, float](), dict[str, float](), dict[str, float]()
    for passed, columns in _PARTS.items():
        found = fit_factors([columns(step) for step in sliced], constant)
        ratios[passed] = measured_ratio([columns(step) for step in whole], found)
        fixed[passed] = found[0]
        in_step |= dict(zip((passed, _ATTENTION.get(passed, "")), found[1:]))
    ordered = {name: in_step[name] for name in FACTORS}
    return StepFactors(ordered, fixed, ratios, steps[0].rates(), steps[0].between)


_PARTS: dict[str, Callable[[StepOps], StepColumns]] = {
    **{passed: partial(StepOps.layer_columns, kind=kind) for kind, passed in PASS_OF.items()},
    "head": StepOps.head_columns,
}
"""What factors are found of."""
_ATTENTION = {"forward": "attention forward", "inputs": "attention backward"}
"""Passes with attention, and its factor."""


def measured_ratio(parts: Sequence[StepColumns], factors: Sequence[float]) -> float:
    """Measured seconds for each that factors say."""
    measured = sum(float(seconds.sum()) for seconds, _ in parts)
    said = sum(
        factors[0] * len(seconds) + sum(float(f * c.sum()) for f, c in zip(factors[1:], columns))
        for seconds, columns in parts
    )
    return measured / said


def fit_factors(parts: Sequence[StepColumns], constant: bool) -> list[float]:
    """A constant, and a factor of each column. Without a constant where the best is below 0."""
    measured = np.concatenate([seconds for seconds, _ in parts])
    columns = [np.concatenate(each) for each in zip(*(columns for _, columns in parts))]
    common = float(measured.sum() / np.sum(columns))
    least = float(measured.min())
    ones = [np.full(len(measured), least)] if constant else []
    table = np.stack([*ones, *columns], 1) / measured[:, None]
    likely = np.array([0.0] * len(ones) + [common] * len(columns))
    alike = np.sqrt(ALIKE) * np.eye(len(likely))
    wanted = np.concatenate([np.ones(len(measured)), alike @ likely])
    found = np.linalg.lstsq(np.vstack([table, alike]), wanted, rcond=None)[0].tolist()
    if not constant:
        return [0.0, *found]
    return [found[0] * least, *found[1:]] if found[0] >= 0 else fit_factors(parts, False)


def phases_of(ops: Mapping[Op, float], seconds: float, clearing: float) -> dict[str, float]:
    """Seconds of a step by what it does; they add up to the step."""
    found = dict.fromkeys((*_PHASES, "clearing"), 0.0)
    for op, took in ops.items():
        found[next(name for name, kinds in _PHASES.items() if op.kind in kinds)] += took
    found["clearing"] = clearing
    return found | {"other": seconds - sum(found.values())}


_PHASES = {
    "forward": "FNRES",
    "backward inputs": "BITD",
    "backward weights": "W",
    "copies": "OL",
    "reduction": "GZ",
    "norm": "V",
    "update": "UAC",
}
"""Which kinds of op belong to which phase."""


def op_rows(case: ProfileCase, ops: Mapping[Op, float]) -> Sequence[dict[str, Any]]:
    """Ops by kind, kind of stage and slice."""
    starts = np.cumsum((0, *case.lengths)).tolist()
    return [
        {
            "kind": op.kind,
            "stage": KINDS_OF_STAGE[op.stage],
            "slice": op.slice,
            "tokens": case.lengths[op.slice],
            "past": starts[op.slice],
            "seconds": seconds,
        }
        for op, seconds in ops.items()
        if op.kind in "FIW"
    ]
