"""One microbatch on the ranks of a cell, cut into any number of slices.

Divisions of a cell differ in their pipelines, and in how many microbatches these have. What a
microbatch takes is the same in all of them, so that it is worked out once, with what bounds ask of
it: a table for the numbers of slices that schedules have.
"""

from collections.abc import Callable, Sequence

import numpy as np

from penstock.estimate.layer_sorts import Floats
from penstock.planner.piece_times import PieceTimes

OfPiece = Callable[[PieceTimes], Sequence[float | Floats]]
"""Numbers of a microbatch, or arrays over sorts of layers; a function that has a name, by which
what it found is kept."""


class CellPieces:
    """The microbatches of one cell."""

    def __init__(self, make: Callable[[int], PieceTimes]) -> None:
        self._make = make
        self._known: dict[int, PieceTimes] = {}
        self._tables: dict[tuple[OfPiece, tuple[int, ...]], Floats] = {}

    def __call__(self, slices: int) -> PieceTimes:
        """One that is cut into so many slices."""
        if slices not in self._known:
            self._known[slices] = self._make(slices)
        return self._known[slices]

    def table(self, found: OfPiece, counts: tuple[int, ...]) -> Floats:
        """What is found of microbatches that are cut into so many slices, row by row."""
        if (found, counts) not in self._tables:
            self._tables[found, counts] = np.array([found(self(each)) for each in counts], float)
        return self._tables[found, counts]
