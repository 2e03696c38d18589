"""What a step makes of kernels: how much longer ops take than their kernels one by one.

A step of the profiled model has ops of a stage of layers alone, of one with the embedding and of
one with the head. In the middle stage an op of slice s takes

    F    a x (products and moved bytes, one by one) + b x (attention, one by one)

and slices differ in the share of attention, so that a and b follow by least squares of relative
errors. A step with the whole sequence has factors of its own, because slices write their keys and
values down and add up gradients of others; its b is that of slices. W is products alone. What the
first stage takes longer than its layers is the embedding, and the last one the head. Seconds of a
step that belong to no op lie between ops.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.cluster.gpu import PassShares
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
UNKNOWN_RATE = 1.0
"""In place of rates that a step is still to say."""
OUTSIDE = 2.0
"""Factors that differ more from what both have in common are noise."""


@dataclass(frozen=True)
class StepFactors:
    """What follows from a profiled step."""

    in_step: dict[str, float]
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
    attended: Mapping[str, float] = field(default_factory=dict)
    """Factors of attention by pass, where they are known from another step."""

    def factors(self) -> StepFactors:
        """Of this step."""
        forward, attended = self._pair("F", "forward", 0)
        inputs, attended_back = self._pair("I", "inputs", 1)
        weights = self._ratio(self._layer("W"), self._alone("weights"))
        values = (forward, inputs, weights, attended, attended_back, self._head())
        lookups = {f"lookup {name}": self._lookup(kind) for kind, name in _LOOKUPS.items()}
        on_batch = sum(op.kind in "FIW" for op in self.ops)
        rest = self.seconds - sum(self.ops.values()) - self.clearing
        return StepFactors(
            dict(zip(FACTORS, values)), lookups | self._ends(), max(0.0, rest / on_batch)
        )

    def layers(self, stage: int) -> int:
        return self._workload.layers[stage]

    @property
    def _workload(self) -> Workload:
        schedule = three_stages(self.case.slices)
        return Workload.of(schedule.shape, self.case.model, self.case.lengths)

    def seconds_of(self, kind: str, stage: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Of each slice."""
        slices = range(self.case.slices)
        return np.array([self.ops[Op(kind, stage, 0, slice)] for slice in slices])

    def _layer(self, kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Of one layer, from all stages that have nothing else in such ops."""
        stages = LAYERS_ALONE[kind]
        whole = np.sum([self.seconds_of(kind, stage) for stage in stages], 0)
        return np.asarray(whole / sum(map(self.layers, stages)))

    def _alone(self, passed: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Kernels of a layer but attention, one by one."""
        return np.array([self.times.parts(unit).of(passed) for unit in self.units])

    @property
    def units(self) -> list[Any]:
        """The slices."""
        starts = np.cumsum((0, *self.case.lengths)).tolist()
        return [whole_unit(count, past) for count, past in zip(self.case.lengths, starts)]

    def _pair(self, kind: str, passed: str, at: int) -> tuple[float, float]:
        """Factors of the linear part and of attention."""
        measured, linear = self._layer(kind), self._alone(passed)
        attended = np.array([self._attended(unit)[at] for unit in self.units])
        both = self._ratio(measured, linear + attended)
        if len(measured) < 2:
            return self._of_whole(passed, float(measured[0]), float(linear[0]), float(attended[0]))
        table = np.stack([linear, attended], 1) / measured[:, None]
        found = np.linalg.lstsq(table, np.ones(len(measured)), rcond=None)[0]
        if not all(both / OUTSIDE < each < both * OUTSIDE for each in found):
            return both, both
        return float(found[0]), float(found[1])

    def _of_whole(
        self, passed: str, measured: float, linear: float, attended: float
    ) -> tuple[float, float]:
        """One slice does not tell products and attention apart: the latter is as in others."""
        both = measured / (linear + attended)
        known = self.attended.get(_ATTENDED[passed], both)
        rest = (measured - known * attended) / linear
        return (rest, known) if both / OUTSIDE < rest < both * OUTSIDE else (both, both)

    def _attended(self, unit: Any) -> PassShares:
        return self.times.attention_seconds(unit)

    def _ratio(self, measured: Any, alone: Any) -> float:
        return float(np.sum(measured) / np.sum(alone))

    def _head(self) -> float:
        """What the last stage takes beside its layers."""
        beside = self.seconds_of("I", LAST) - self._layer("I") * self.layers(LAST)
        model = self.case.model
        flops = 3 * model.vocabulary * model.head.flops_per_logit
        alone = sum(self.times.head_alone(count, flops * count) for count in self.case.lengths)
        return max(float(beside.sum()), 0.1 * alone) / alone

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


_LOOKUPS = {"F": "forward", "I": "inputs"}
_ATTENDED = {"forward": "attention forward", "inputs": "attention backward"}


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
