"""Which runs of MLPs are fused, and which windows of whole blocks could run side by side.

A run is a stretch of blocks without attention whose dependencies are all low. Its last MLP is left
out: including it costs quality. Where the weights of a fused run would not fit, it is cut.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DependencyMatrix = NDArray[np.float64]

WINDOW_BLOCKS = 4
"""Whole blocks that may run side by side."""


def low_runs(matrix: DependencyMatrix, attends: Sequence[bool], limit: float) -> list[range]:
    """Stretches of blocks without attention, as long as they can be, in which no block depends on
    another one by more than `limit`; from the front."""
    found: list[range] = []
    first = 0
    while first < len(attends):
        stop = first
        while stop < len(attends) and not attends[stop] and _highest(matrix, first, stop) <= limit:
            stop += 1
        if stop - first > 1:
            found.append(range(first, stop))
        first = max(stop, first + 1)
    return found


def _highest(matrix: DependencyMatrix, first: int, last: int) -> float:
    """The highest dependency among some blocks, themselves apart."""
    inside = matrix[first : last + 1, first : last + 1]
    return float(np.triu(inside, 1).max(initial=0.0))


def fusable_runs(
    matrix: DependencyMatrix,
    attends: Sequence[bool],
    limit: float,
    widths: Sequence[int] = (),
    most: int | None = None,
) -> list[range]:
    """Runs to fuse: the last MLP of each is left out, and each is cut so that it has at most `most`
    columns; what is left alone is not fused.

    >>> fusable_runs(np.zeros((8, 8)), [True, False, False, False, False, True, True, True], 0.1)
    [range(1, 4)]
    """
    runs = [own[:-1] for own in low_runs(matrix, attends, limit)]
    cut = [part for own in runs for part in _cut(own, widths, most)]
    return [own for own in cut if len(own) > 1]


def _cut(run: range, widths: Sequence[int], most: int | None) -> list[range]:
    """A run in parts that are no wider than they may be, the first ones as wide as they can be."""
    if most is None:
        return [run]
    found, start = [], run.start
    for layer in run:
        if layer > start and sum(widths[start : layer + 1]) > most:
            found.append(range(start, layer))
            start = layer
    return [*found, range(start, run.stop)]


def parallel_windows(
    matrix: DependencyMatrix,
    attends: Sequence[bool],
    size: int = WINDOW_BLOCKS,
    count: int | None = None,
) -> list[range]:
    """Windows of consecutive whole blocks, the least dependent first: that with the smallest
    highest dependency, of equals that with the smallest sum, of equals the first. None overlaps
    another."""
    starts = [
        start for start in range(len(attends) - size + 1) if all(attends[start : start + size])
    ]
    order = sorted(starts, key=lambda start: (*_statistics(matrix, start, size), start))
    found: list[range] = []
    for start in order:
        if all(abs(start - own.start) >= size for own in found):
            found.append(range(start, start + size))
    return found[:count]


def _statistics(matrix: DependencyMatrix, start: int, size: int) -> tuple[float, float]:
    inside = np.triu(matrix[start : start + size, start : start + size], 1)
    return float(inside.max(initial=0.0)), float(inside.sum())
