"""The workload of a model that leaves out tokens: layers inside of brackets have fewer of them.

A layer on level d has keep^d of the tokens, and so much of the bytes of activations, keys and
values; pairs of queries and keys are counted from the tokens that each slice keeps. Where a bracket
is open between two stages, what went into it goes along, with a place and a weight for each token
that is kept (model/stages/carried_levels.py):

    boundary    n_d h + sum over open brackets of (n_e-1 h + 2 n_e words)       e = 1..d
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from penstock.arch.layers.record import wide_bytes
from penstock.arch.subsampling import Subsampling
from penstock.core.homes import stage_column, weight_homes
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.passes import Counts
from penstock.cost.work_amounts import WorkAmounts
from penstock.cost.workload import Workload

LayerShares = NDArray[np.float64]
BOUNDARY_PARTS = 1024
"""What a boundary of all tokens is divided into, where messages are counted in such parts."""


@dataclass(frozen=True)
class KeptWorkload(Workload):
    """A workload whose layers are on levels."""

    def _refuse_brackets(self) -> None:
        return

    @property
    def subsampling(self) -> Subsampling:
        assert self.model.subsampling is not None  # others are plain workloads
        return self.model.subsampling

    @cached_property
    def stage_layers(self) -> list[range]:
        return [range(*ends) for ends in pairwise(accumulate(self.layers, initial=0))]

    @cached_property
    def level_layers(self) -> Counts:
        """Layers of each stage on each level."""
        levels, deepest = self.subsampling.levels, self.subsampling.deepest
        found = [
            [sum(levels[layer] == level for layer in layers) for level in range(deepest + 1)]
            for layers in self.stage_layers
        ]
        return np.array(found, np.int64)

    @cached_property
    def met(self) -> LayerShares:
        """Layers of each stage that a token of the sequence goes through, on average."""
        return np.asarray(self.level_layers @ self._share_of_level)

    @cached_property
    def _share_of_level(self) -> LayerShares:
        levels = range(self.subsampling.deepest + 1)
        return np.array([float(self.subsampling.keep) ** level for level in levels])

    @cached_property
    def of_sorts(self) -> tuple[Workload, ...]:
        """The layers of each level that has some, as a workload of the tokens that get there."""
        plain, found = replace(self.model, subsampling=None), []
        for level in self._sorted_levels:
            layers = tuple(self.level_layers[:, level].tolist())
            one = replace(plain, layers=sum(layers))
            found.append(Workload(one, self._kept_lengths(level), layers, needs=self.needs))
        return tuple(found)

    def sort_counts(self, layers: range) -> tuple[int, ...]:
        own = self.subsampling.levels[layers.start : layers.stop]
        return tuple(map(own.count, self._sorted_levels))

    @property
    def _sorted_levels(self) -> list[int]:
        return sorted({*self.subsampling.levels})

    def _kept_lengths(self, level: int) -> tuple[tuple[int, ...], ...]:
        """Tokens of each slice that get to a level."""
        kept = self.subsampling.kept
        each = {ns: tuple(kept(n, level) for n in ns) for ns in {*self.lengths}}
        return tuple(map(each.__getitem__, self.lengths))

    def attended_half_pairs(self, schedule: Schedule) -> Counts:
        found = self.level_layers @ self.level_half_pairs
        return np.asarray(found[stage_column(schedule), schedule.unit], np.int64)

    @cached_property
    def level_half_pairs(self) -> Counts:
        """Doubled pairs of each unit in a layer of each level."""
        kept = [self._kept_lengths(level) for level in range(1, self.subsampling.deepest + 1)]
        inner = [KeptWorkload(self.model, each, self.layers).half_pairs for each in kept]
        return np.stack([self.half_pairs, *inner])

    def rates(self, shape: Shape) -> WorkAmounts:
        found = super().rates(shape)
        return WorkAmounts(*(np.rint(table).astype(np.int64) for table in found))

    def applied_to(self, schedule: Schedule) -> Schedule:
        """What stays on a device, where both brackets of a pair are on it, is not sent."""
        found = super().applied_to(schedule)
        homes = {stage: each[0] for stage, each in weight_homes(schedule).items()}
        local = self.subsampling.local_pairs(self.stage_layers, homes)
        longest, ends = max(map(sum, self.lengths)), accumulate(self.layers[:-1])
        sent = tuple(self.message_bytes(longest, boundary, local) for boundary in ends)
        return replace(found, shape=replace(found.shape, boundary_bytes=sent), derived={})

    def boundaries(self, tokens: int) -> tuple[int, ...]:
        ends = accumulate(self.layers[:-1])
        return tuple(self.message_bytes(tokens, boundary) for boundary in ends)

    def least_message(self, tokens: int) -> int:
        every = {pair.number for pair in self.subsampling.pairs}
        between = range(1, self.model.layers)
        return min((self.message_bytes(tokens, at, every) for at in between), default=0)

    @property
    def boundary_parts(self) -> int:
        return BOUNDARY_PARTS

    def message_bytes(self, tokens: int, boundary: int, local: Collection[int] = ()) -> int:
        """Bytes that go over the boundary in front of a layer, of so many tokens, where what goes
        past some pairs stays where it is."""
        around = self.subsampling.around(boundary)
        counts = [self.subsampling.kept(tokens, each) for each in range(len(around) + 1)]
        past = [own for own, pair in zip(counts, around) if pair.number not in local]
        words = 2 * wide_bytes(self.model.element_bytes)
        return (counts[-1] + sum(past)) * self.model.boundary_bytes + words * sum(counts[1:])

    def elements(self, stage: int) -> tuple[int, int]:
        matrices, vectors = super().elements(stage)
        return matrices, vectors + self.model.bracket_vectors(self.stage_layers[stage])

    def _bytes_per_token(self, shape: Shape, size: str) -> Counts:
        if size == "ckpt":
            longest = max(map(sum, self.lengths))
            first = self.model.boundary_bytes * longest if shape.embed == "E" else 0
            found = np.array([first, *self.boundaries(longest)]) / longest
            return np.asarray(np.rint(found), np.int64)
        found = np.asarray(super()._bytes_per_token(shape, size), np.float64)
        if size == "act":
            found = found + self._saved_by_brackets
        return np.asarray(np.rint(found), np.int64)

    @cached_property
    def _saved_by_brackets(self) -> LayerShares:
        """Bytes of a token that scorers and bypasses of each stage keep, on average."""
        found = np.zeros(len(self.layers))
        for stage, layers in enumerate(self.stage_layers):
            for layer in layers:
                opened, closed = self.subsampling.opened(layer), self.subsampling.closed(layer)
                scorers, bypasses = (
                    self.model.opening_records(layer),
                    self.model.closing_records(layer),
                )
                for pair, record in zip(opened, scorers):
                    found[stage] += record.saved_bytes * self._share_of_level[pair.level - 1]
                for pair, record in zip(closed, bypasses):
                    found[stage] += record.saved_bytes * self._share_of_level[pair.level]
        return found

    def _temporary(self, schedule: Schedule) -> Counts:
        """As much as its outermost layer has, of each stage."""
        outermost = [
            min((self.subsampling.levels[layer] for layer in layers), default=0)
            for layers in self.stage_layers
        ]
        share = np.array([*self._share_of_level[outermost], 1.0])
        rows = np.minimum(stage_column(schedule), len(self.layers))
        return np.asarray(np.rint(super()._temporary(schedule) * share[rows]), np.int64)
