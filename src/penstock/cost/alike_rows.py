"""Rows of a schedule that cost the same: ops of one kind, on one stage, of slices that are alike.

A step has thousands of ops and few that differ: microbatches are cut alike. So whoever prices ops
looks at one of each sort, and hands on what it found to all the others.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.schedule import Schedule
from penstock.core.table import CODE


class AlikeRows(NamedTuple):
    """A row of each sort, with its columns, and the sort of every row."""

    first: NDArray[np.int64]
    """The first row of each sort."""
    kind: NDArray[np.int64]
    stage: NDArray[np.int64]
    alike: NDArray[np.int64]
    """Which of the units that differ its unit is like."""
    of_row: NDArray[np.int64]
    units: NDArray[np.int64]
    """What was asked for: which of those that differ each unit is like."""

    def of_kind(self, kind: str) -> NDArray[np.int64]:
        """Sorts of one kind."""
        return np.flatnonzero(self.kind == CODE[kind])


def alike_rows(schedule: Schedule, units: NDArray[np.int64]) -> AlikeRows:
    """The sorts of a schedule's rows, where units with the same number are alike; the last number
    is that of rows without a unit. What was found last is kept with the schedule."""
    kept: AlikeRows | None = schedule.derived.get("alike rows")
    if kept is None or (kept.units is not units and not np.array_equal(kept.units, units)):
        kept = schedule.derived["alike rows"] = _sorted_out(schedule, units)
    return kept


def _sorted_out(schedule: Schedule, units: NDArray[np.int64]) -> AlikeRows:
    table, alike = schedule.table, units[schedule.unit]
    stages, differing = int(table.stage.max()) + 1, int(units.max()) + 1
    key = (table.kind.astype(np.int64) * stages + table.stage) * differing + alike
    first = np.full(int(key.max()) + 1, -1)
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)  # of equal keys the last one stays
    there = first >= 0
    number, rows = np.cumsum(there) - 1, first[there]
    kind, stage = (column[rows].astype(np.int64) for column in (table.kind, table.stage))
    return AlikeRows(rows, kind, stage, alike[rows], number[key], units)


@dataclass(frozen=True)
class AlikeUnits:
    """Slices of microbatches that differ."""

    numbers: NDArray[np.int64]
    """For each unit its number among those that differ, and behind them one more."""
    places: tuple[tuple[int, int], ...]
    """Of each that differs a microbatch and a slice that it stands at."""
    lengths: tuple[tuple[int, ...], ...]
    """Of each that differs the slices up to it."""

    @cached_property
    def first(self) -> tuple[int, ...]:
        """A unit of each that differs, and the last number, which stands for none."""
        return tuple(np.unique(self.numbers, return_index=True)[1].tolist())


@lru_cache(maxsize=256)
def alike_units(microbatches: tuple[tuple[int, ...], ...]) -> AlikeUnits:
    """Slices that differ in their length, or in the lengths of those before them."""
    known: dict[tuple[int, ...], int] = {}
    of_lengths: dict[tuple[int, ...], list[int]] = {}
    places: list[tuple[int, int]] = []
    for number, lengths in enumerate(microbatches):
        if lengths not in of_lengths:
            ends = range(1, len(lengths) + 1)
            places += [(number, end - 1) for end in ends if lengths[:end] not in known]
            of_lengths[lengths] = [known.setdefault(lengths[:end], len(known)) for end in ends]
    each = chain(*(of_lengths[lengths] for lengths in microbatches))
    return AlikeUnits(np.array([*each, len(known)], np.int64), tuple(places), tuple(known))


def single_units(microbatches: tuple[tuple[int, ...], ...]) -> AlikeUnits:
    """All slices, where each of them is different."""
    places = [(at, end) for at, lengths in enumerate(microbatches) for end in range(len(lengths))]
    lengths = tuple(microbatches[at][: end + 1] for at, end in places)
    return AlikeUnits(np.arange(len(places) + 1), tuple(places), lengths)
