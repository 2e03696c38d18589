"""Seconds of ops by kind, stage and slice, as far as somebody has asked for them.

Candidates of a search have thousands of ops and few that differ. A table of those that differ is
filled once for all schedules in which a rank may run, and a schedule looks its rows up.
"""

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from penstock.core.table import CODE, LETTERS

StageSeconds = NDArray[np.float64]


class OpTable:
    """By kind of op, stages that are alike, and units that differ; the last unit stands for none,
    and takes nothing unless it is said what."""

    def __init__(self, stages: int, units: int) -> None:
        self._seconds = np.zeros((len(LETTERS), stages, units + 1))
        self._filled: set[str] = set()

    def of(self, kinds: Collection[str], found: Callable[[str], StageSeconds]) -> StageSeconds:
        """The table, with these kinds filled in: `found` has what ops of a kind take, by stages and
        units."""
        for kind in set(kinds) - self._filled:
            of_kind = found(kind)
            self._seconds[CODE[kind], :, : of_kind.shape[1]] = of_kind
            self._filled.add(kind)
        return self._seconds
