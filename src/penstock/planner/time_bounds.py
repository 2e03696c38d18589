"""Seconds that no plan of a division is below, for all its schedules at once.

A device does all its work, one op after the other. It cannot start before the first slice has gone
through the layers in front of it; and when its last backward is done, this slice still has to go
back through them, unless the device has weight gradients left to fill that time with. Then
gradients are added up and weights updated.

    front            layers in front x forward of the first slice, and messages
    work             m x (layers x all passes, and what the ends of the model add)
    behind           layers in front x backward of the first slice
    end              the sum of a stage's gradients, the update of what a device owns

The same holds for the last stage alone: the first slice goes through all layers to it, it computes
all microbatches forward and back, and the last one goes back through all layers.

Strands of a pair hide what others wait for, so that for them computing alone counts. Where devices
lend each other attention, the mean over devices is certain, and what is not attention.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from penstock.arch.layers.record import wide_bytes
from penstock.arch.mesh_shape import COPY_AXES
from penstock.cluster.collective_times import GroupLinks
from penstock.estimate.cluster_links import ClusterLinks, cluster_links
from penstock.estimate.layer_sorts import Floats
from penstock.planner.columns import DivisionColumns, Flags
from penstock.planner.piece_times import PieceTimes
from penstock.planner.variants import PlanVariant

RECOMPUTED = ("stages", "all")
"""What runs all forwards again."""


@dataclass(frozen=True)
class TimeBounds:
    """The bounds of a division's schedules."""

    columns: DivisionColumns
    known: dict[Any, Floats] = field(default_factory=dict)

    def seconds(self, variant: PlanVariant) -> Floats:
        """Of a step, for each schedule."""
        key = variant._replace(shard="none", offload="none")
        if key not in self.known:
            self.known[key] = self._busy(variant)
        return self.known[key] + self._end(variant)

    def copied(self, variant: PlanVariant) -> Floats:
        """Seconds that copies to the host and back take, if nothing is left out. It is no bound: an
        activation whose backward comes next stays where it is."""
        have, division = self.columns.entries, self.columns.division
        if variant.offload == "none":
            return np.zeros(len(have.entries))
        (moved,) = self.columns.of_pieces(_copied)
        rate = self.columns.problem.cluster.gpu.host_rate
        return np.asarray((2 * division.microbatches * have.of_layers(moved) / rate).max(axis=1))

    def _busy(self, variant: PlanVariant) -> Floats:
        """Until the last backward."""
        facts, spread = self.columns.facts, self.columns.spread(variant)
        again = self._work("F", spread) * (variant.recompute in RECOMPUTED)
        forward = self._work("F", spread) + again
        inputs, weights = self._work("I", spread), self._work("W", spread)
        head = self._of_head(spread)
        together = forward + self._work("B", spread) + np.maximum(self._passed("B"), head)
        apart = forward + np.maximum(inputs + weights + head, inputs + self._passed("I"))
        times = 1 + (variant.recompute in RECOMPUTED)
        alone = times * self._computing("F", spread) + self._computing("B", spread)
        busy = np.where(facts["split"], apart, together)
        busy = self._passed("F") + np.where(facts["braided"], alone, busy)
        longest = np.maximum(busy.max(axis=1, keepdims=True), self._last_stage())
        lent = np.maximum(self._even(times, spread), self._at_home(times, spread))
        return np.where(facts["lends"], lent, longest)[:, 0]

    def _at_home(self, times: int, spread: Flags) -> Floats:
        """What no device can lend: all but attention."""
        measured = self.columns.problem.cluster.gpu.measured  # lent by rates, not by a profile
        if measured or not self.columns.facts["lends"].any():
            return np.zeros((1, 1))
        forward, backward = self.columns.of_pieces(_attention)
        lendable = self.columns.entries.of_layers(times * forward + backward)
        all_work = times * self._computing("F", spread) + self._computing("B", spread)
        left = all_work - self.columns.division.microbatches * lendable
        return np.asarray(left.max(axis=1, keepdims=True))

    def _last_stage(self) -> Floats:
        """The way to the last stage, its work without weight gradients, and the way back."""
        first, all_slices = self.columns.of_pieces(_passes)
        every = self.columns.division.microbatches * all_slices
        return self._of_model(first) + self.columns.entries.of_smallest(every - first)

    def _of_model(self, each: Floats) -> Floats:
        """What all layers have, with what a layer of each sort has."""
        return np.asarray((self.columns.problem.sorts.every * each).sum(axis=-1))

    def _work(self, kind: str, spread: Flags) -> Floats:
        """Seconds of all ops of a kind on each device; without a vocabulary that is spread."""
        key = (kind, bool(spread.all()))
        if key not in self.known:
            self.known[key] = self._computing(kind, spread) + self._waiting(kind, spread)
        return self.known[key]

    def _computing(self, kind: str, spread: Flags) -> Floats:
        """The same without what is waited for."""
        key = ("computing", kind, bool(spread.all()))
        if key not in self.known:
            self.known[key] = self._computed(kind, spread)
        return self.known[key]

    def _computed(self, kind: str, spread: Flags) -> Floats:
        (layer,) = self.columns.of_pieces(_OF_LAYERS[kind])
        others = self.columns.of_pieces(_BESIDE_LAYERS[kind])
        return self._of_device(layer, others, spread)

    def _waiting(self, kind: str, spread: Flags) -> Floats:
        """For ranks of the cell: slices send no less than whole sequences, in more messages."""
        whole = self.columns.pieces(1).waiting[kind]
        others = [np.array(each) for each in whole.others]
        return np.maximum(self._of_device(whole.of_layers, others, spread), 0)

    def _of_device(self, layer: Floats, others: list[Floats], spread: Flags) -> Floats:
        """All microbatches on each device, from the parts of one."""
        boundary, embedding, head = others
        have = self.columns.entries
        each = have.of_layers(layer) + self.columns.stages * boundary
        ends = np.where(spread, 0, have.first * embedding + have.last * head)
        return np.asarray(self.columns.division.microbatches * (each + ends))

    def _of_head(self, spread: Flags) -> Floats:
        """A device's part of a head that all devices share."""
        division = self.columns.division
        each = self._whole_head + self.columns.pieces(1).shared_loss
        return np.asarray(spread * division.microbatches * each / division.pipeline)

    @property
    def _whole_head(self) -> float:
        """Seconds of a head that one device has, in a microbatch."""
        piece = self.columns.pieces(1)
        return max(0.0, sum(piece.computing[kind].others[2] for kind in "FB"))

    def _even(self, times: int, spread: Flags) -> Floats:
        """A device's part of all computing, which is the same however it is dealt out, and how long
        a device is in front of its first op and behind its last one, on average."""
        division = self.columns.division
        forward, backward, first, last = self.columns.of_pieces(_mean_parts)
        each = self._of_model(times * forward + backward) / division.pipeline
        ramp = (division.pipeline - 1) / 2 * self.columns.entries.of_smallest(first + last)
        head = (self._whole_head + spread * self.columns.pieces(1).shared_loss) / division.pipeline
        return division.microbatches * (each + head) + ramp

    def _passed(self, kind: str) -> Floats:
        """One slice, the first, through all stages in front of a device: until it arrives, or until
        it is back at the first stage when a device has done its last backward."""
        if kind not in self.known:
            (layer,) = self.columns.of_pieces(_FIRST_SLICES[kind])
            (message,) = self.columns.of_pieces(_message)
            have = self.columns.entries
            self.known[kind] = have.of_before(layer) + have.place * message
        return self.known[kind]

    def _end(self, variant: PlanVariant) -> Floats:
        """The sum of a stage's gradients, and the update of all that a device owns."""
        columns = self.columns
        wide = wide_bytes(columns.problem.element_bytes)
        elements = columns.least_elements * columns.entries.stages
        rate = columns.pieces(1).cost.times.memory_rate
        updated = elements / columns.owners(variant) * 7 * wide / rate
        return np.asarray(updated + self._summed(variant.shard))

    def _summed(self, shard: str) -> Floats:
        """Of the smallest stage; gradients that are scattered at once may be added up early."""
        columns, copies = self.columns, self.columns.division.copies
        if copies == 1 or shard == "full":
            return np.zeros(len(columns.entries.entries))
        group = self._links.group(*COPY_AXES)
        different, which = columns.different_least
        wide = wide_bytes(columns.problem.element_bytes)
        sent = (different * wide * (copies - 1) / copies).tolist()
        if shard == "none":
            return np.array([group.sum_seconds(2 * each) for each in sent])[which]
        return np.array([group.ring_seconds(each) for each in sent])[which]

    @property
    def _links(self) -> ClusterLinks:
        """Of the division: what its microbatches are asked for may be of another one, whose copies
        are in other machines."""
        division, links = self.columns.division, self.columns.pieces(1).cost.links
        return cluster_links(division.mesh, division.pipeline, links.hardware, links.cluster)


def _copied(piece: PieceTimes) -> tuple[Floats]:
    """Bytes of a layer of each sort that copies move."""
    return (piece.copied.sum(axis=1),)


def _attention(piece: PieceTimes) -> tuple[Floats, Floats]:
    return piece.attention


def _of_layers(kind: str, piece: PieceTimes) -> tuple[Floats]:
    """Seconds of all slices of a layer of each sort."""
    return (piece.computing[kind].of_layers,)


def _beside_layers(kind: str, piece: PieceTimes) -> tuple[float, float, float]:
    return piece.computing[kind].others


def _first_slice(kind: str, piece: PieceTimes) -> tuple[Floats]:
    """Seconds of the first slice of a layer of each sort."""
    return (piece.computing[kind].layer[:, 0],)


_OF_LAYERS, _BESIDE_LAYERS, _FIRST_SLICES = (
    {kind: partial(found, kind) for kind in "FIWB"}
    for found in (_of_layers, _beside_layers, _first_slice)
)


def _message(piece: PieceTimes) -> tuple[float]:
    """The first slice from device to device, over the fastest link that these can have."""
    sent = piece.cost.workload.least_message(piece.lengths[0]) * piece.layout.rows
    groups = (GroupLinks(piece.layout.cluster, 2, near) for near in (1, 2))
    return (min(group.message_seconds(float(sent)) for group in groups),)


def _passes(piece: PieceTimes) -> tuple[Floats, Floats]:
    """Seconds of the first slice of a layer of each sort, and of all slices, forward and back to
    its input."""
    forward, inputs = (piece.computing[kind] for kind in "FI")
    return forward.layer[:, 0] + inputs.layer[:, 0], forward.of_layers + inputs.of_layers


def _mean_parts(piece: PieceTimes) -> tuple[Floats, ...]:
    """Seconds of the microbatch of a layer of each sort forward and backward, and of its first
    slice."""
    both = [piece.computing[kind] for kind in "FB"]
    return (*(each.of_layers for each in both), *(each.layer[:, 0] for each in both))
