"""Query-key pairs of the ops of a workload: what attention costs, layer by layer.

A slice of n tokens that ends at position e has n e - n^2 / 2 pairs; in a layer with a window, a
query beyond it has as many as the window has keys.
"""

from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from penstock.arch.config import ModelConfig
from penstock.core.homes import stage_column
from penstock.core.schedule import Schedule
from penstock.cost.passes import Counts


class AttentionPairs:
    """Those of a workload, which has these."""

    model: ModelConfig
    lengths: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]

    def attended_half_pairs(self, schedule: Schedule) -> Counts:
        """Query-key pairs of each row in all layers of its stage, doubled to be whole."""
        stage, unit = stage_column(schedule), schedule.unit
        near = self.windowed
        found = self.unbounded[stage] * self.half_pairs[unit]
        if near.any():
            found = found + near[stage] * self.window_half_pairs[unit]
        return np.asarray(found, np.int64)

    @cached_property
    def windowed(self) -> Counts:
        """Layers of each stage that have a sliding window."""
        return np.array([*map(self.model.windowed, self.split)], np.int64)

    @cached_property
    def unbounded(self) -> Counts:
        """Layers of each stage that have attention without a window."""
        every = np.array(self.layers, np.int64)
        if self.model.blocks:
            every = np.array([len(self.model.attending(own)) for own in self.split], np.int64)
        return np.asarray(every - self.windowed, np.int64)

    @cached_property
    def split(self) -> tuple[range, ...]:
        """The layers of each stage."""
        return tuple(range(*ends) for ends in pairwise(accumulate(self.layers, initial=0)))

    @property
    def _slice_tokens(self) -> Counts:
        """Tokens of each unit on all ranks together, and a 0 at the end."""
        return np.array([*(n for lengths in self.lengths for n in lengths), 0], np.int64)

    @property
    def attended_tokens(self) -> Counts:
        """Queries of each unit that a rank attends with, and a 0 at the end."""
        return self._slice_tokens

    @cached_property
    def half_pairs(self) -> Counts:
        """Query-key pairs of each unit, doubled to be whole: n (2 e - n); 0 at the end."""
        return self._half_pairs(None)

    @cached_property
    def window_half_pairs(self) -> Counts:
        """The same where a query sees no more keys than the window has."""
        return self._half_pairs(self.model.window)

    def _half_pairs(self, window: int | None) -> Counts:
        ends = [end for lengths in self.lengths for end in accumulate(lengths)]
        sizes = [size for lengths in self.lengths for size in lengths]
        stop = np.array([*ends, 0], np.int64)
        return _seen(stop, window) - _seen(stop - np.array([*sizes, 0], np.int64), window)

    @property
    def mean_half_pairs(self) -> Counts:
        """Of each unit in a layer, on average over all layers that attend, rounded down."""
        layers = range(self.model.layers)
        near, every = self.model.windowed(layers), len(self.model.attending(layers))
        if not near:
            return self.half_pairs
        total = (every - near) * self.half_pairs + near * self.window_half_pairs
        return np.asarray(total // every, np.int64)


def _seen(ends: Counts, window: int | None) -> Counts:
    """As `seen_half_pairs` (arch/attention_rule.py), for many."""
    near = ends if window is None else np.minimum(ends, window)
    return np.asarray(near * (2 * ends - near), np.int64)
