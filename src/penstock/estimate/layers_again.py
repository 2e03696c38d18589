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


class KindOfLayers(NamedTuple):
    """The layers of one kind."""

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

    @cached_property
    def of_kinds(self) -> list[KindOfLayers]:
        """By stages."""
        counted = zip(self.workload.of_kinds, self._again)
        return [
            KindOfLayers(each, np.array(each.layers, np.int64), again) for each, again in counted
        ]

    @property
    def _again(self) -> list[Counts]:
        model = self.workload.model
        if not model.blocks:
            return [np.minimum(np.array(self.workload.layers, np.int64), self.count)]
        first = [model.counts(own[: self.count]) for own in self.workload.split]
        return [np.array([each[kind] for each in first], np.int64) for kind in model.kinds]

    def _of_rows(self, schedule: Schedule) -> Iterator[KindOfLayers]:
        """By rows of a schedule, of which some are no stage's."""
        stage = stage_column(schedule)
        for own in self.of_kinds:
            columns = np.zeros((2, schedule.shape.homes), np.int64)
            columns[:, : len(own.layers)] = own.layers, own.again
            yield KindOfLayers(own.workload, *columns[:, stage])

    def kept(self, schedule: Schedule, pairs: Counts) -> Counts:
        """What layers that are computed again do not keep, and what attention keeps of `pairs`, the
        bytes of each unit in one layer."""
        found, unit = np.zeros(len(schedule.table), np.int64), schedule.unit
        for work, layers, again in self._of_rows(schedule):
            layer, given = (work.layer_bytes(size)[unit] for size in ("act", "input"))
            found += (layers - again) * pairs[unit] * work.part.attends - again * (layer - given)
        return found

    def keys(self, schedule: Schedule, pairs: Counts) -> Counts:
        """Keys and values of whole sequences, which no other slice needs, are made again too."""
        found = np.zeros(len(schedule.table), np.int64)
        for work, _, again in self._of_rows(schedule):
            found -= again * _whole_keys(work)[schedule.unit]
        return found

    def while_running(self, schedule: Schedule, pairs: Counts) -> Counts:
        """One layer that is computed again, and gradients of its pairs."""
        table, unit = schedule.table, schedule.unit
        backward, both = map(table.of_kinds, (BACKWARD_KINDS, BACKWARD_KINDS + FORWARD_KINDS))
        found = np.zeros(len(table), np.int64)
        for work, _, again in self._of_rows(schedule):
            layer = work.layer_bytes("act") + _whole_keys(work) + pairs * work.part.attends
            found = np.maximum(found, (again > 0) * layer[unit] * backward)
        return np.asarray(found + pairs[unit] * both)


def _whole_keys(work: Workload) -> Counts:
    """Bytes of the keys and values of a layer, of sequences that are not cut."""
    return np.asarray(work.layer_bytes("kv") * (1 - work.cut), np.int64)


CHANGED_BYTES: Mapping[str, Callable[[LayersAgain, Schedule, Counts], Counts]] = {
    "act": LayersAgain.kept,
    "kv": LayersAgain.keys,
    "temp": LayersAgain.while_running,
}
"""What layers that are computed again change, by size."""
