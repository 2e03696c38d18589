"""Bytes that no plan of a division is below, for all its schedules at once.

Weights, gradients and optimizer state are held all the time. To these a device adds, when it holds
most, at least one microbatch, or as many as the record of the schedule claims, each as large as its
smallest stage. Of a sequence the first slices are there, whatever their number: they go forward
first and back last. Where backwards are whole, the next thing that a full device does is one of
them, which needs its own room. Where activations wait on the host, a few are there or on the way,
and keys and values of a sequence that is cut stay.
"""

from dataclasses import dataclass, field

import numpy as np

from penstock.arch.layers.record import wide_bytes
from penstock.estimate.memory_classes import CONTEXT, DRIVER, GAPS
from penstock.planner.columns import DivisionColumns
from penstock.planner.piece_times import Floats, PieceTimes
from penstock.planner.variants import PlanVariant

ON_THE_WAY = 3
"""Activations that are there at once where copies go to the host: a copy has the time of two ops to
go out (transform/offload.py), so that of an op and of the two before it is not away yet."""
NOT_AWAY = 6
"""Activations that are not on the host although their backward is to come, at most, for each strand
of a pair: those that are loaded for the next two turns, and of the last four those that stay."""


@dataclass(frozen=True)
class MemoryBounds:
    """The bounds of a division's schedules."""

    columns: DivisionColumns
    known: dict[PlanVariant, Floats] = field(default_factory=dict)

    def bytes(self, variant: PlanVariant) -> Floats:
        """Of the device that needs most, for each schedule."""
        key = variant._replace(shard="none", vocabulary=False)
        if key not in self.known:
            self.known[key] = (1 + GAPS) * self._step(variant)
        held = self._state(variant) + self.known[key]
        return np.asarray(held.max(axis=1) + CONTEXT + DRIVER)

    def host_bytes(self, variant: PlanVariant) -> Floats:
        """Of the host that has most, for each schedule: no less than hosts have on average."""
        columns, have = self.columns, self.columns.entries
        if variant.offload == "none":
            return np.zeros(len(have.entries))
        average, largest = columns.by_slices(_moved)
        units = have.live_mean * columns.stages * columns.slices
        fewest = have.fewest.min(axis=1, keepdims=True)
        near = NOT_AWAY * (1 + columns.facts["braided"])
        each = fewest * np.maximum(units * average - near * largest, 0)
        cluster = columns.problem.cluster
        hosts = -(-cluster.gpus // cluster.machine.gpus)
        return np.asarray(each.max(axis=1) * cluster.gpus / hosts)

    def _state(self, variant: PlanVariant) -> Floats:
        """Weights, gradients and optimizer state."""
        columns, have = self.columns, self.columns.entries
        part, narrow = columns.pieces(1).cost.workload.part, columns.problem.element_bytes
        wide = wide_bytes(narrow)
        ends = np.where(columns.spread(variant), 0, have.first + have.last)
        at_ends, twice = ends * part.head_weights, part.head_weights * (ends > 1) * part.tied
        elements = have.layers * columns.layer_elements + at_ends * part.trains_all
        stored = elements - twice * part.trains_all
        frozen = have.layers * columns.layer_frozen + (at_ends - twice) * (not part.trains_all)
        owned = stored / columns.owners(variant)
        if variant.shard == "full":
            used = np.minimum(2, columns.stages) / columns.stages
            buffers = ((narrow + wide) * stored + narrow * frozen) * used
            kept = owned * (narrow * (narrow < wide) + 3 * wide)
            return np.asarray(kept + narrow * frozen / columns.owners(variant) + buffers)
        main = owned if narrow < wide else stored
        narrower = stored * narrow * (narrow < wide) + frozen * narrow
        return np.asarray(narrower + (elements + main + 2 * owned) * wide)

    def _step(self, variant: PlanVariant) -> Floats:
        """What a device keeps of microbatches, and what a backward needs while it runs."""
        columns, have = self.columns, self.columns.entries
        whole, slice, average, given, running, moved, stays = columns.by_slices(_sizes)
        units = have.live * columns.stages * columns.slices
        if variant.offload == "all":
            there = np.clip(units, 1, ON_THE_WAY)
            kept = have.fewest * np.maximum(slice, there * moved + units * stays)
        elif variant.recompute == "none":
            kept = np.maximum(have.layers * whole, units * have.fewest * average)
        elif variant.recompute == "stages":
            kept = np.maximum(have.fewest * slice, units * given * (have.first == 0))
        else:
            kept = np.zeros_like(units)
        whole_backwards = ~(columns.facts["split"] | columns.facts["braided"])
        return np.asarray(kept + running * whole_backwards)


def _sizes(piece: PieceTimes) -> tuple[float, ...]:
    """Bytes of a layer: a microbatch, its largest slice, a slice on average and its input, what a
    backward needs, and of a slice what can be moved and the keys and values that stay."""
    averages = map(_least_average, (piece.kept, piece.given))
    cut = len(piece.lengths) > 1
    running = 0.0 if cut else piece.running.min()  # slices need little
    stays = _least_average(piece.keys) if cut else 0.0
    return (piece.kept.sum(), piece.kept.max(), *averages, running, piece.act.min(), stays)


def _moved(piece: PieceTimes) -> tuple[float, float]:
    """Bytes of a layer that copies move: of a slice on average, and of the largest."""
    return _least_average(piece.act), float(piece.act.max())


def _least_average(slices: Floats) -> float:
    """What a slice has on average, where some of the first are there."""
    return float((np.cumsum(slices) / np.arange(1, len(slices) + 1)).min())
