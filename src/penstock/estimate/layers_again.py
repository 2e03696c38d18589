"""Layers of stages by their kind, and those of them that keep only their input and are computed
again: the first ones of each stage."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from penstock.core.homes import stage_column
from penstock.core.schedule import Schedule
from penstock.cost.collectives import BACKWARD_KINDS, FORWARD_KINDS
from penstock.cost.passes import Counts
from penstock.cost.workload import Workload
from penstock.estimate.layer_times import LayerTimes

PairBytes = Callable[[Workload], Counts]
"""Bytes of the pairs of each unit in attention of one layer, of layers of one kind."""


class KindOfLayers(NamedTuple):
    """The layers of one kind, that see the same tokens."""

    workload: Workload
    """With these layers alone."""
    layers: Counts
    """How many each stage has, or each row of a schedule."""
    again: Counts
    """How many of them are computed again."""

    def times(self, whole: LayerTimes) -> LayerTimes:
        """The times of such a layer, of those of a model."""
        if whole.part is self.workload.part:
            return whole
        return replace(whole, part=self.workload.part, attended=self.workload.attended)


@dataclass(frozen=True, eq=False)
class LayersAgain:
    """The layers of a workload, so many of each stage computed again; at most all."""

    workload: Workload
    count: int
    attention: bool
    """Whether attention of the others is computed again too, so that it keeps no pairs."""
    norms: int
    """How many times its input a norm keeps beside what a fused one does."""

    @cached_property
    def of_kinds(self) -> list[KindOfLayers]:
        """By stages."""
        counted = zip(self.workload.of_sorts, self._again)
        return [
            KindOfLayers(each, np.array(each.layers, np.int64), again) for each, again in counted
        ]

    @property
    def _again(self) -> list[Counts]:
        work = self.workload
        if len(work.of_sorts) == 1:
            return [np.minimum(np.array(work.layers, np.int64), self.count)]
        first = [work.sort_counts(own[: self.count]) for own in work.split]
        return [*np.array(first, np.int64).T]

    def _of_rows(self, schedule: Schedule) -> Iterator[KindOfLayers]:
        """By rows of a schedule, of which some are no stage's."""
        stage = stage_column(schedule)
        for own in self.of_kinds:
            columns = np.zeros((2, schedule.shape.homes), np.int64)
            columns[:, : len(own.layers)] = own.layers, own.again
            yield KindOfLayers(own.workload, *columns[:, stage])

    def kept(self, schedule: Schedule, pairs: PairBytes) -> Counts:
        """What layers that are computed again do not keep, and what attention keeps of `pairs`, the
        bytes of each unit in one layer of a kind."""
        found, unit = np.zeros(len(schedule.table), np.int64), schedule.unit
        for work, layers, again in self._of_rows(schedule):
            layer, given = (work.layer_bytes(size)[unit] for size in ("act", "input"))
            of_pairs = pairs(work)[unit] * work.part.attends * (not self.attention)
            of_norms = self._norms_of(work)[unit]
            found += (layers - again) * (of_pairs + of_norms) - again * (layer - given)
        return found

    def _norms_of(self, work: Workload) -> Counts:
        """Bytes that the norms of a layer keep more than fused ones, one in front of each block."""
        return np.asarray(work.layer_bytes("input") * self.norms * (1 + work.part.attends))

    def keys(self, schedule: Schedule, pairs: PairBytes) -> Counts:
        """Keys and values of whole sequences, which no other slice needs, are made again too."""
        found = np.zeros(len(schedule.table), np.int64)
        for work, _, again in self._of_rows(schedule):
            found -= again * _whole_keys(work)[schedule.unit]
        return found

    def while_running(self, schedule: Schedule, pairs: PairBytes) -> Counts:
        """One layer that is computed again, or its pairs alone, and gradients of its pairs."""
        table, unit = schedule.table, schedule.unit
        backward, both = map(table.of_kinds, (BACKWARD_KINDS, BACKWARD_KINDS + FORWARD_KINDS))
        found, gradients = np.zeros((2, len(table)), np.int64)
        for work, layers, again in self._of_rows(schedule):
            own = pairs(work)
            made = own * work.part.attends
            layer = work.layer_bytes("act") + _whole_keys(work) + made + self._norms_of(work)
            found = np.maximum(found, (again > 0) * layer[unit] * backward)
            if self.attention:
                found = np.maximum(found, (layers > 0) * made[unit] * backward)
            gradients = np.maximum(gradients, (layers > 0) * own[unit])
        return np.asarray(found + gradients * both)


def _whole_keys(work: Workload) -> Counts:
    """Bytes of the keys and values of a layer, of sequences that are not cut."""
    return np.asarray(work.layer_bytes("kv") * (1 - work.cut), np.int64)


CHANGED_BYTES: Mapping[str, Callable[[LayersAgain, Schedule, PairBytes], Counts]] = {
    "act": LayersAgain.kept,
    "kv": LayersAgain.keys,
    "temp": LayersAgain.while_running,
}
"""What layers that are computed again change, by size."""
