"""Few combinations of many settings, in which every two values meet.

What breaks a runtime is most often two things that come together, seldom three. So instead of all
combinations enough are taken that each pair of values of two axes is in one of them.

    covering({"a": (0, 1), "b": (0, 1), "c": (0, 1)})    4 rows of 8
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations, product
from typing import Any, TypeVar

import numpy as np

Row = dict[str, Any]
Pair = tuple[tuple[str, Hashable], tuple[str, Hashable]]
Candidate = TypeVar("Candidate")


def everything(row: Row) -> bool:
    """All combinations can be."""
    return True


def pairs_of(row: Row) -> set[Pair]:
    """The pairs of values that meet in a row."""
    return set(combinations(row.items(), 2))


def covering(
    axes: Mapping[str, Sequence[Hashable]], allowed: Callable[[Row], bool] = everything
) -> list[Row]:
    """Rows that are allowed, in which each pair of values meets that meets in any of those."""
    rows = (dict(zip(axes, values)) for values in product(*axes.values()))
    return cover_pairs([*filter(allowed, rows)], lambda row: row)


def cover_pairs(
    candidates: Sequence[Candidate], row_of: Callable[[Candidate], Row]
) -> list[Candidate]:
    """Candidates whose rows have each pair of values that meets in a row of any candidate.

    Always the same ones: each is the first of those that have most pairs which are still missing.
    """
    numbers: dict[Pair, int] = {}
    rows = map(row_of, candidates)
    each = [[numbers.setdefault(pair, len(numbers)) for pair in pairs_of(row)] for row in rows]
    table = np.array(each, dtype=np.int64)
    missing = np.ones(len(numbers), dtype=bool)
    chosen: list[Candidate] = []
    while missing.any():
        best = int(missing[table].sum(axis=1).argmax())
        missing[table[best]] = False
        chosen.append(candidates[best])
    return chosen
