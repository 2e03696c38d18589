"""The work of a model that is cut at its attention, stage by stage.

Attention is a stage of its own, and a stage with weights reaches from one attention to the next
(model/stages/between_attentions.py). So a stage has no whole layers: its work, its memory and its
messages follow from its parts.

    stage 0            embedding, front of layer 0
    stage 2 l + 1      attention of layer l
    stage 2 j          rest of layer j - 1, front of layer j
    stage 2 L          rest of layer L - 1, output layer
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arch.attention_cut import (
    HEADS,
    Crossing,
    crossings,
    front_parameters,
    projection_parameters,
    rest_parameters,
)
from penstock.arch.layers.parameter import InitialValue, Parameter
from penstock.core.homes import stage_column
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import LETTERS
from penstock.cost import passes
from penstock.cost.cell_workload import CellWorkload
from penstock.cost.cut_moments import CutMoments, WeightMoments
from penstock.cost.kept_workload import BOUNDARY_PARTS
from penstock.cost.passes import Counts
from penstock.cost.rank_temporary import RankMoments
from penstock.cost.work_amounts import WorkAmounts

_FIRST, _BETWEEN, _LAST, _ATTENTION = range(4)
"""What a stage of such a model is."""


@dataclass(frozen=True)
class CutWorkload(CellWorkload):
    """What one rank has of it; a stage of attention counts as its layer."""

    to_attention: str = HEADS
    """What attention is given (arch/attention_cut.py)."""

    @cached_property
    def _crossings(self) -> tuple[Crossing, Crossing]:
        return crossings(self.part, self.to_attention)

    @cached_property
    def weightless(self) -> frozenset[int]:
        return frozenset(stage for stage, layers in enumerate(self.layers) if layers)

    @cached_property
    def _kinds(self) -> Counts:
        """What each stage is."""
        found = np.where(np.array(self.layers) > 0, _ATTENTION, _BETWEEN)
        found[0], found[-1] = _FIRST, _LAST
        return np.asarray(found, np.int64)

    @property
    def has_front(self) -> NDArray[np.bool_]:
        """Which stages lead into an attention."""
        return np.asarray((self._kinds == _FIRST) | (self._kinds == _BETWEEN))

    @property
    def has_rest(self) -> NDArray[np.bool_]:
        """Which stages follow one."""
        return np.asarray((self._kinds == _BETWEEN) | (self._kinds == _LAST))

    def boundaries(self, tokens: int) -> tuple[int, ...]:
        moments = self._slice(tokens, tokens)
        return (moments.given, moments.result) * self.model.layers

    @property
    def boundary_parts(self) -> int:
        return BOUNDARY_PARTS

    def elements(self, stage: int) -> tuple[int, int]:
        parts = [each for each in self._parameters[int(self._kinds[stage])] if each.trained]
        matrices = sum(each.elements for each in parts if len(each.shape) > 1)
        return matrices, sum(each.elements for each in parts) - matrices

    def frozen(self, stage: int) -> int:
        parts = self._parameters[int(self._kinds[stage])]
        return sum(each.elements for each in parts if not each.trained)

    @cached_property
    def _parameters(self) -> tuple[Sequence[Parameter], ...]:
        """Of the layers that each kind of stage has a part of."""
        front, rest = front_parameters(self.part), rest_parameters(self.part)
        return front, (*rest, *front), rest, ()

    def rates(self, shape: Shape) -> WorkAmounts:
        found = super().rates(shape)
        if self.to_attention == HEADS:
            return found
        attends = passes.ATTENTION_FORWARD * (np.array(LETTERS) != "R")  # its output is kept
        half_pair = np.full(len(self.layers), self.attended.attending_kind.pair_flops // 2)
        return found._replace(attention=np.outer(attends, half_pair))

    @property
    def layer_products(self) -> Counts:
        """FLOPs of one token in the matrices that each stage multiplies by, by kind of op."""
        found = np.array([products_of(each) for each in self._parameters]).T[:, self._kinds]
        if self.to_attention == HEADS:
            return np.asarray(found)
        moved = products_of(projection_parameters(self.part))[:, None]
        return np.asarray(found - moved * self.has_front + moved * (self._kinds == _ATTENTION))

    def _kept(self, schedule: Schedule, size: str) -> Counts:
        if size in ("kv", "dkv"):
            return super()._kept(schedule, size)
        table = self._by_kind[size]
        return np.asarray(table[self._kinds[stage_column(schedule)], schedule.unit], np.int64)

    def _bytes_per_token(self, shape: Shape, size: str) -> Counts:
        """On average over the longest unit, rounded up: what a copy to the host is charged for."""
        if size == "kv":
            return super()._bytes_per_token(shape, size)
        if size == "sliced":  # values are apart from queries and keys
            return np.zeros(len(self.layers), np.int64)
        at = int(self.tokens.argmax())
        kept = self._by_kind[size][self._kinds, at]
        return np.asarray(-(-kept // max(int(self.tokens[at]), 1)), np.int64)

    def _kept_of_slices(self, schedule: Schedule) -> Counts:
        """Values are apart from queries and keys, whether cut or not."""
        return np.zeros(len(schedule.table), np.int64)

    def _temporary(self, schedule: Schedule) -> Counts:
        table, kinds, unit = schedule.table, self._kinds[stage_column(schedule)], schedule.unit
        forward, backward = table.of_kinds("FNR"), table.of_kinds("BI")
        here, moments = inputs_at_hand(schedule), self._by_kind
        passing = ~self.keeps_input(schedule) & here.x & table.of_kinds("FN")
        found = forward * moments["forward"][kinds, unit] + passing * moments["input"][kinds, unit]
        found += backward * moments["backward"][kinds, unit]
        found += backward * here.g * moments["gradient"][kinds, unit]
        return np.asarray(found, np.int64)

    def keeps_input(self, schedule: Schedule) -> NDArray[np.bool_]:
        """Which rows keep what they are given: forwards. Attention that is given heads keeps them
        rotated, unless it runs again; one that is given weights keeps a copy of a part."""
        attention = self._kinds[stage_column(schedule)] == _ATTENTION
        copying = "F" if self.to_attention == HEADS else "FN"
        kept = schedule.table.of_kinds("FN") & ~(attention & schedule.table.of_kinds(copying))
        return np.asarray(kept, np.bool_)

    @cached_property
    def _by_kind(self) -> dict[str, Counts]:
        """Bytes of each size, of each kind of stage and unit."""
        found: dict[str, list[tuple[int, ...]]] = {}
        for lengths in self.lengths:
            keys = 0
            for at, count in enumerate(lengths):
                left = keys if at + 1 == len(lengths) else 0
                keys += self.share.tokens(count).attended
                for size, each in _sizes(self._slice(count, keys, left)).items():
                    found.setdefault(size, []).append(each)
        return {size: np.array([*each, (0,) * 4], np.int64).T for size, each in found.items()}

    def _slice(self, count: int, keys: int, left: int = 0) -> CutMoments:
        moments = RankMoments.of(self.share, count, keys, left)
        kind = CutMoments if self.to_attention == HEADS else WeightMoments
        return kind(moments, self.share.tokens(count), *self._crossings)


def products_of(parameters: Sequence[Parameter]) -> Counts:
    """FLOPs of one token in the matrices among some parameters, by kind of op."""
    matrices = [each for each in parameters if len(each.shape) > 1]
    forward = 2 * sum(each.elements for each in matrices)
    weight = 2 * sum(each.elements for each in matrices if each.trained)
    again = 2 * sum(each.elements for each in matrices if each.start is InitialValue.UNIFORM)
    return passes.FORWARD * forward + passes.INPUT * (forward + again) + passes.WEIGHT * weight


def _sizes(slice: CutMoments) -> dict[str, tuple[int, ...]]:
    """Of one slice, in the order of the kinds of stages."""
    own, loss = slice.sizes.own, slice.sizes.loss(slice.tokens.whole)
    front, rest, result = slice.front_kept(), slice.rest_kept(), slice.result
    first = slice.backward(rest=False, front=True, loss=0)
    between = slice.backward(rest=True, front=True, loss=0)
    last = slice.backward(rest=True, front=False, loss=loss)
    before, behind = slice.forward(front=True), slice.forward(front=False)
    return {
        "act": (front, rest + front, rest + own, slice.attention_kept()),
        "ckpt": (0, result, result, slice.attention_light()),
        "stash": (
            slice.front_stash(),
            slice.rest_stash() + slice.front_stash(),
            slice.rest_stash(),
            0,
        ),
        "forward": (before, before, behind, slice.attention_forward()),
        "backward": (first, between, last, slice.attention_backward()),
        "input": (0, 0, 0, slice.given),
        "gradient": (slice.given, slice.given, 0, result),
    }


class AtHand(NamedTuple):
    """For every row whether the op before it in the model, or behind it, ran on its device."""

    x: NDArray[np.bool_]
    g: NDArray[np.bool_]


def inputs_at_hand(schedule: Schedule) -> AtHand:
    """Which rows read an input, or a gradient, that did not come from another device: no receive
    has counted it."""
    table, shape, unit = schedule.table, schedule.shape, schedule.unit
    device = np.full((shape.stages + 2, shape.units + 1), -1, np.int64)
    rows = np.flatnonzero(table.of_kinds("FN"))
    device[table.stage[rows] + 1, unit[rows]] = table.device[rows]
    stage = stage_column(schedule)
    return AtHand(device[stage, unit] == table.device, device[stage + 2, unit] == table.device)
