"""A few rows out of many in which any two values that can meet do meet.

Whatever breaks when a run goes on under another layout depends on one value or on two that meet,
hardly ever on three. So not all combinations are run, but rows in which all pairs of values are.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import TypeVar

Row = Sequence[Hashable]
"""A value for each factor, in one order of the factors."""
Candidate = TypeVar("Candidate", bound=Row)


def pairs_of(row: Row) -> frozenset[object]:
    """All pairs of values of a row, each value with the number of its factor."""
    return frozenset(combinations(enumerate(row), 2))


def cover_pairs(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Rows with every pair of values that some candidate has: always the one with most new pairs,
    the first of them where several have as many."""
    new = {candidate: pairs_of(candidate) for candidate in candidates}
    chosen: list[Candidate] = []
    while new:
        best = max(new, key=lambda candidate: len(new[candidate]))
        chosen.append(best)
        seen = new[best]
        new = {row: left for row, pairs in new.items() if (left := pairs - seen)}
    return chosen
