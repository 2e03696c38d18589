"""Seconds of ops by kind, stage and slice, as far as somebody has asked for them.

Candidates of a search have thousands of ops and few that differ. A table of those that differ is
filled once for all schedules in which a rank may run, and a schedule looks its rows up.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.core.table import CODE, LETTERS

Kinds = Sequence[str]
StageSeconds = NDArray[np.float64]


class OpTable:
    """By kind of op, stages that are alike, and units that differ; the last unit stands for none,
    and takes nothing unless it is said what."""

    def __init__(self, stages: int, units: int) -> None:
        self._seconds = np.zeros((len(LETTERS), stages, units + 1))
        self._filled: set[str] = set()

    def of(self, kinds: Collection[str], found: Callable[[Kinds], StageSeconds]) -> StageSeconds:
        """The table, with these kinds filled in: `found` has what ops of some kinds take, by kind,
        stages and units."""
        lacking = sorted(set(kinds) - self._filled)
        if lacking:
            each = found(lacking)
            self._seconds[[CODE[kind] for kind in lacking], :, : each.shape[2]] = each
            self._filled.update(lacking)
        return self._seconds
