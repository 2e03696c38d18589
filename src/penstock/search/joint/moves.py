"""Where a search starts and where it can step: cuts of the layers, and homes of the stages."""

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from penstock.core.shape import Shape
from penstock.schedules.generators.placements import Placement, looped_placement, wave_placement
from penstock.search.joint.pipeline import Whole

Split = tuple[int, ...]
"""Layers of each stage."""

GRAIN = 12
"""Layers per device where none are given: 1, 2, 3 or 4 stages per device are then equal."""


class CutAndHomes(NamedTuple):
    """A cut of the layers, and a home for each stage."""

    split: Split
    placement: Placement


def families(devices: int, chunks: int) -> Iterator[Placement]:
    """Placements with names, with up to `chunks` stages per device: in a row, in loops, in waves.

    >>> list(families(2, 2))
    [(0, 1), (0, 1, 0, 1), (0, 1, 1, 0)]
    """
    for rounds in range(1, chunks + 1):
        shape = Shape.even(devices, 1, rounds)
        yield looped_placement(shape)
        if rounds > 1 and devices > 1:
            yield wave_placement(shape)


def evenest(weights: Whole, stages: int) -> Split:
    """The cut into consecutive stages whose heaviest stage is lightest.

    >>> evenest(np.array([1, 1, 1, 1, 4]), 3)
    (2, 2, 1)
    """
    low, high = int(weights.max()), int(weights.sum())
    while low < high:
        middle = (low + high) // 2
        if len(_packed(weights, middle)) <= stages:
            high = middle
        else:
            low = middle + 1
    return _filled(_packed(weights, low), stages)


def _packed(weights: Whole, limit: int) -> list[int]:
    """As few stages as possible of at most `limit`, each as full as it goes."""
    counts, room = [0], limit
    for weight in weights.tolist():
        if weight > room:
            counts.append(0)
            room = limit
        counts[-1] += 1
        room -= weight
    return counts


def _filled(counts: list[int], stages: int) -> Split:
    """The same cut with as many stages as wanted: large ones give one layer away at a time."""
    counts = list(counts)
    while len(counts) < stages:
        largest = max(range(len(counts)), key=lambda stage: counts[stage])
        counts[largest : largest + 1] = [
            counts[largest] - counts[largest] // 2,
            counts[largest] // 2,
        ]
    return tuple(counts)


def balance(weights: Whole, placement: Placement) -> Split:
    """A cut that gives devices equal work: boundaries move as long as that helps."""
    total, stages = int(weights.sum()), len(placement)
    sums = np.cumsum(weights)
    ends = [int(np.searchsorted(sums, total * (s + 1) / stages)) + 1 for s in range(stages - 1)]
    split = _legal(ends, len(weights))
    best, step = _imbalance(weights, split, placement), max(1, len(weights) // stages)
    while step:
        nearer = min(
            ((_imbalance(weights, cut, placement), cut) for cut in shift_boundaries(split, step)),
            default=(best, split),
        )
        if nearer[0] < best:
            best, split = nearer
        else:
            step //= 2
    return split


def _legal(ends: list[int], layers: int) -> Split:
    """Ends of all stages but the last, moved so that every stage has a layer."""
    ends = list(accumulate(ends, lambda before, end: max(end, before + 1)))
    backwards = accumulate(reversed(ends), lambda behind, end: min(end, behind - 1), initial=layers)
    ends = list(backwards)[::-1]
    return tuple(end - begin for begin, end in zip([0, *ends], ends))


def _imbalance(weights: Whole, split: Split, placement: Placement) -> tuple[int, int]:
    """Work of the busiest device; of equal ones, the more even cut into stages."""
    begins = list(accumulate(split, initial=0))[:-1]
    stages = np.add.reduceat(weights, begins)
    loads = np.bincount(np.array(placement), stages)
    return int(loads.max()), int((loads.astype(object) ** 2).sum())


def shift_boundaries(split: Split, most: int = 1) -> Iterator[Split]:
    """Every cut in which one boundary has moved by 1 or `most` layers."""
    for stage in range(len(split) - 1):
        for step in sorted({-most, -1, 1, most}):
            if split[stage] + step > 0 and split[stage + 1] - step > 0:
                yield (
                    *split[:stage],
                    split[stage] + step,
                    split[stage + 1] - step,
                    *split[stage + 2 :],
                )


def carry_layers(split: Split) -> Iterator[Split]:
    """Every cut in which one layer is taken from one stage and one given to another."""
    for source, count in enumerate(split):
        for target in range(len(split)):
            if count > 1 and abs(source - target) > 1:
                counts = list(split)
                counts[source] -= 1
                counts[target] += 1
                yield tuple(counts)


def exchange_homes(placement: Placement) -> Iterator[Placement]:
    """Every placement in which two stages have exchanged their devices."""
    for first in range(len(placement)):
        for second in range(first + 1, len(placement)):
            if placement[first] != placement[second]:
                homes = list(placement)
                homes[first], homes[second] = homes[second], homes[first]
                yield tuple(homes)


def join_stages(layout: CutAndHomes) -> Iterator[CutAndHomes]:
    """Every layout with two neighbouring stages made one, on the device of either."""
    split, homes = layout
    for stage in range(len(split) - 1):
        cut = (*split[:stage], split[stage] + split[stage + 1], *split[stage + 2 :])
        for home in {homes[stage], homes[stage + 1]}:
            placement = (*homes[:stage], home, *homes[stage + 2 :])
            if len(set(placement)) == len(set(homes)):
                yield CutAndHomes(cut, placement)
