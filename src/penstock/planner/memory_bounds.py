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

    def _state(self, variant: PlanVariant) -> Floats:
        """Weights, gradients and optimizer state."""
        columns, have = self.columns, self.columns.entries
        part, narrow = columns.pieces(1).cost.workload.part, columns.problem.element_bytes
        wide = wide_bytes(narrow)
        ends = np.where(columns.spread(variant), 0, have.first + have.last)
        elements = have.layers * columns.layer_elements + ends * part.head_weights
        stored = elements - part.head_weights * (ends > 1) * columns.problem.model.tied
        owned = stored / columns.owners(variant)
        if variant.shard == "full":
            buffers = (narrow + wide) * stored * np.minimum(2, columns.stages) / columns.stages
            return np.asarray(owned * (narrow * (narrow < wide) + 3 * wide) + buffers)
        main = owned if narrow < wide else stored
        narrower = stored * narrow * (narrow < wide)
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


def _least_average(slices: Floats) -> float:
    """What a slice has on average, where some of the first are there."""
    return float((np.cumsum(slices) / np.arange(1, len(slices) + 1)).min())
