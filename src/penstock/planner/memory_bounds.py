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
from penstock.estimate.layer_sorts import Floats
from penstock.estimate.memory_classes import context_bytes, gaps_share
from penstock.planner.columns import DivisionColumns
from penstock.planner.piece_times import PieceTimes
from penstock.planner.variants import PlanVariant

ON_THE_WAY = 3
"""Activations that are there at once where copies go to the host: a copy has the time of two ops to
go out (transform/offload.py), so that of an op and of the two before it is not away yet. Where all
devices have a part of the vocabulary, these two may be ops of it, which have no activations."""
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
        moves, gpu = variant.offload != "none", self.columns.problem.cluster.gpu
        key = variant._replace(shard="none", vocabulary=variant.vocabulary and moves)
        if key not in self.known:
            self.known[key] = (1 + gaps_share(gpu)) * self._step(variant)
        held = self._state(variant) + self.known[key]
        return np.asarray(held.max(axis=1) + context_bytes(gpu))

    def host_bytes(self, variant: PlanVariant) -> Floats:
        """Of the host that has most, for each schedule: no less than hosts have on average."""
        columns, have = self.columns, self.columns.entries
        if variant.offload == "none":
            return np.zeros(len(have.entries))
        average, largest = columns.of_pieces(_moved)
        units = have.live_mean * columns.stages * columns.slices
        near = NOT_AWAY * (1 + columns.facts["braided"])
        away = units[..., None] * average - near[..., None] * largest
        each = have.of_smallest(np.maximum(away, 0))
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
        elements = have.of_layers(columns.layer_elements) + at_ends * part.trains_all
        stored = elements - twice * part.trains_all
        of_layers = have.of_layers(columns.layer_frozen)
        frozen = of_layers + (at_ends - twice) * (not part.trains_all)
        owned = stored / columns.owners(variant)
        if variant.shard == "full":
            buffers = (narrow + wide) * self._buffered(stored, columns.layer_elements)
            buffers += narrow * self._buffered(frozen, columns.layer_frozen)
            kept = owned * (narrow * (narrow < wide) + 3 * wide)
            return np.asarray(kept + narrow * frozen / columns.owners(variant) + buffers)
        main = owned if narrow < wide else stored
        narrower = stored * narrow * (narrow < wide) + frozen * narrow
        return np.asarray(narrower + (elements + main + 2 * owned) * wide)

    def _buffered(self, every: Floats, of_layer: Floats) -> Floats:
        """Of a device's parameters what two buffers hold, each as large as the largest stage that
        uses it: two of equal stages, else no less than an average stage and the smallest."""
        columns, stages = self.columns, self.columns.stages
        if columns.problem.sorts.alike:
            return np.asarray(every * np.minimum(2, stages) / stages)
        both = every / stages + columns.entries.of_fewest(of_layer)
        return np.where(stages > 2, both, every)

    def _step(self, variant: PlanVariant) -> Floats:
        """What a device keeps of microbatches, and what a backward needs while it runs."""
        columns, have = self.columns, self.columns.entries
        whole, slice, average, moved, stays = columns.of_pieces(_sizes)
        given, running = columns.of_pieces(_inputs)
        units = have.live * columns.stages * columns.slices
        if variant.offload == "all":
            there = np.where(columns.spread(variant), 1, np.clip(units, 1, ON_THE_WAY))[..., None]
            both = there * moved + units[..., None] * stays
            kept = np.maximum(have.of_fewest(slice), have.of_fewest(both))
        elif variant.recompute == "none":
            kept = np.maximum(have.of_layers(whole), units * have.of_fewest(average))
        elif variant.recompute == "stages":
            kept = np.maximum(have.of_fewest(slice), units * given * (have.first == 0))
        else:
            kept = np.zeros_like(units)
        whole_backwards = ~(columns.facts["split"] | columns.facts["braided"])
        return np.asarray(kept + running * whole_backwards)


def _sizes(piece: PieceTimes) -> tuple[Floats, ...]:
    """Bytes of a layer of each sort: a microbatch, its longest slice, a slice on average, and of a
    slice what can be moved and the keys and values that stay."""
    kept, tokens = piece.kept, piece.tokens
    average, stays = (_of_token(size, tokens) * _mean_tokens(tokens) for size in (kept, piece.keys))
    moved = _of_token(piece.act, tokens) * tokens.min()
    cut = len(piece.lengths) > 1
    return (kept.sum(axis=1), kept[:, tokens.argmax()], average, moved, stays * cut)


def _inputs(piece: PieceTimes) -> tuple[float, float]:
    """Bytes of the input of a slice on average, and what a backward needs; that of slices is
    little."""
    of_token = (piece.given / piece.tokens).min()
    cut = len(piece.lengths) > 1
    return of_token * _mean_tokens(piece.tokens), 0.0 if cut else piece.running.min()


def _moved(piece: PieceTimes) -> tuple[Floats, Floats]:
    """Bytes of a layer of each sort that copies move: of a slice on average, and of the longest."""
    of_token = _of_token(piece.copied, piece.tokens)
    return of_token * _mean_tokens(piece.tokens), of_token * piece.tokens.max()


def _of_token(sizes: Floats, tokens: Floats) -> Floats:
    """Bytes of a token in a layer of each sort, at least. With them a stage that is the smallest in
    one slice is so in all."""
    return np.asarray((sizes / tokens).min(axis=1))


def _mean_tokens(tokens: Floats) -> float:
    """What a slice has on average, where some of the first are there."""
    return float((np.cumsum(tokens) / np.arange(1, len(tokens) + 1)).min())
