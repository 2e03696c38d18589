"""Sums over the layers of stages, which need not be alike.

A workload of a model whose layers differ is one workload for each kind of layer, with the layers of
that kind on each stage; what layers have of something adds up over them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from penstock.arch.config import ModelConfig
from penstock.cost import passes
from penstock.cost.attention_pairs import AttentionPairs
from penstock.cost.passes import Counts


class LayerSums(AttentionPairs):
    """Those of a workload, which has these."""

    @property
    def part(self) -> ModelConfig:
        """The model as a rank has it."""
        return self.model

    @cached_property
    def of_kinds(self) -> tuple[Self, ...]:
        """The same with the layers of one kind alone, for each kind of layer that the model has.
        What the ends of the model and windows of some layers add is not in it."""
        if len(self.model.kinds) == 1:
            return (self,)
        own: Any = self
        counts = [self.model.counts(each) for each in self.split]
        layers = {kind: tuple(each[kind] for each in counts) for kind in self.model.kinds}
        return tuple(
            replace(own, model=replace(kind, layers=sum(each), window=None), layers=each)
            for kind, each in layers.items()
        )

    @cached_property
    def of_sorts(self) -> tuple[Any, ...]:
        """The same by what a layer takes: the layers of one kind that see the same tokens, as
        a workload."""
        if len(self._windows) < 2:
            return self.of_kinds
        own: Any = self
        columns = zip(*map(self.sort_counts, self.split))
        return tuple(
            replace(own, model=_all_like(kind, seen, sum(each)), layers=each)
            for (kind, seen), each in zip(self._windows, columns)
        )

    def sort_counts(self, layers: range) -> tuple[int, ...]:
        """How many of some layers there are of each."""
        if not self._windows:
            return tuple(self.model.counts(layers).values())
        found = alike_layers(self.model, layers)
        return tuple(count for kind, seen, count in found if (kind, seen) in self._windows)

    @cached_property
    def _windows(self) -> list[tuple[ModelConfig, int | None]]:
        """Kinds of layers with the windows that there are of them; none in a model without."""
        every = range(self.model.layers)
        if not self.model.windowed(every):
            return []
        return [(kind, seen) for kind, seen, count in alike_layers(self.model, every) if count]

    def summed_up(self, found: Callable[[ModelConfig], int]) -> Counts:
        """What layers have of something, summed over those of each stage."""
        own = ((np.array(each.layers, np.int64), found(each.part)) for each in self.of_kinds)
        return np.asarray(sum(layers * size for layers, size in own), np.int64)

    def summed(self, name: str) -> Counts:
        """The same, by the name of it."""
        if name not in self._sums:
            self._sums[name] = self.summed_up(lambda part: int(getattr(part, name)))
        return self._sums[name]

    @cached_property
    def _sums(self) -> dict[str, Counts]:
        return {}

    @cached_property
    def met(self) -> NDArray[Any]:
        """Layers of each stage that a token goes through: all of them."""
        return np.array(self.layers, np.int64)

    def met_sum(self, name: str) -> NDArray[Any]:
        """What layers have of something, summed over those of each stage that a token meets."""
        return np.asarray(sum(each.met * getattr(each.part, name) for each in self.of_kinds))

    @property
    def layer_products(self) -> Counts:
        """FLOPs of one token in the products of the layers of each stage, by kind of op."""
        own = (np.outer(passes.layer_products(each.part), each.met) for each in self.of_kinds)
        return np.asarray(sum(own))


def _all_like(kind: ModelConfig, window: int | None, layers: int) -> ModelConfig:
    """A model of so many layers of a kind, all with a window or all without."""
    return replace(kind, layers=layers, window=window, window_pattern=())


@lru_cache(maxsize=1024)
def alike_layers(
    model: ModelConfig, layers: range
) -> tuple[tuple[ModelConfig, int | None, int], ...]:
    """Kinds and windows of some layers, and how many there are of each; without a window first."""
    every = range(layers.start, layers.stop)
    near = [at for at in model.attending(every) if model.has_window(at)]
    groups = ((None, [at for at in every if at not in {*near}]), (model.window, near))
    found = ((seen, model.counts(own)) for seen, own in groups)
    return tuple((kind, seen, count) for seen, each in found for kind, count in each.items())
