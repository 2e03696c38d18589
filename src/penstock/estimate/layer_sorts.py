"""Layers that take as long and keep as much: bounds count how many of each sort a device has.

Layers of most models are of one sort. A model may have layers without attention, or with a wider
MLP (`ModelConfig.kinds`), and layers that only some of the tokens get to. What one layer of each
sort takes is asked of a small model, which has them all.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arch.config import ModelConfig
from penstock.arch.layer_split import split_layers

Floats = NDArray[np.float64]


class LayerSorts(NamedTuple):
    """The sorts of a model's layers."""

    of_layer: tuple[int, ...]
    """The sort of each layer."""
    small: ModelConfig
    """A model with a layer of each sort."""
    shown_by: tuple[int, ...]
    """For each sort a layer of the small model."""

    @property
    def alike(self) -> bool:
        """Whether there is one sort."""
        return len(self.shown_by) == 1

    def counts(self, layers: range) -> tuple[int, ...]:
        """How many of some layers there are of each sort."""
        own = self.of_layer[layers.start : layers.stop]
        return tuple(own.count(sort) for sort in range(len(self.shown_by)))

    @property
    def every(self) -> Floats:
        """How many layers of each sort the model has."""
        return np.array(self.counts(range(len(self.of_layer))), np.float64)


@lru_cache(maxsize=64)
def layer_sorts(model: ModelConfig) -> LayerSorts:
    """The sorts of a model's layers, in the order in which they are met."""
    keys = [_sort(model, layer) for layer in range(model.layers)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    of_layer = tuple(numbers[key] for key in keys)
    if len(numbers) == 1:
        return LayerSorts(of_layer, replace(model, layers=1), (0,))
    first = tuple(of_layer.index(sort) for sort in range(len(numbers)))
    if model.subsampling is not None:
        return LayerSorts(of_layer, model, first)
    blocks = tuple(model.block(layer) for layer in first) if model.blocks else ()
    pattern = tuple(map(model.has_window, first)) if model.window_pattern else ()
    small = replace(model, layers=len(first), blocks=blocks, window_pattern=pattern)
    return LayerSorts(of_layer, small, tuple(range(len(first))))


@lru_cache(maxsize=1024)
def sorts_of_stages(model: ModelConfig, stages: int, layers: tuple[int, ...]) -> Floats:
    """How many layers of each sort stages have: by stage, and by sort. Stages have so many layers,
    or without `layers` as even as can be."""
    split, sorts = split_layers(model.layers, stages, layers), layer_sorts(model)
    return np.array([*map(sorts.counts, split)], np.float64)


def _sort(model: ModelConfig, layer: int) -> Hashable:
    """What layers of one sort have in common: what they are made of and whether they have a window,
    or the tokens that get there and the brackets in front of them and behind."""
    kept = model.subsampling
    if kept is None:
        return model.like(layer), bool(model.windowed(range(layer, layer + 1)))
    return kept.levels[layer], len(kept.opened(layer)), len(kept.closed(layer))


def least_stages(stages: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Of stages with so many layers of each sort those that may be the smallest: whatever layers
    of a sort weigh, one of them is.

    >>> least_stages([(2, 0), (1, 1), (1, 2), (1, 1)])
    [(1, 1), (2, 0)]
    """
    different = sorted({*stages})
    return [
        each
        for each in different
        if not any(
            other != each and all(a <= b for a, b in zip(other, each)) for other in different
        )
    ]
