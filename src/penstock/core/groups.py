"""Ops that start and end together: pairs, loans and gangs are one thing to a clock.

A pair braids ops of one lane, a gang spreads one op over several lanes, a loan runs two ops of two
lanes in lock-step. In all three the members start when every one of them may start, and end
together; so the graph sees one group of rows.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.kernel import kernel
from penstock.core.named_rows import are_pairs_braided, loan_rows, pair_rows
from penstock.core.schedule import Schedule
from penstock.core.table import Ints


class Groups(NamedTuple):
    """`of_row[row]` is a group or -1; `rows[start[g] : start[g + 1]]` are its members."""

    of_row: Ints
    start: Ints
    rows: Ints


def groups_of(schedule: Schedule) -> Groups:
    """The groups of a schedule, built once and kept with it."""
    return schedule.derive("groups", _build)


def _build(schedule: Schedule) -> Groups:
    of_row = np.full(len(schedule.table), -1, np.int32)
    pairs_alone = not (schedule.loans or schedule.gangs) and len({*map(len, schedule.pairs)}) == 1
    if pairs_alone and are_pairs_braided(schedule):
        return _of_pairs(of_row, np.sort(pair_rows(schedule)[0], axis=1))
    joined = _joined(schedule)
    leader = np.arange(len(schedule.table))
    _find_leaders(len(joined), *np.ascontiguousarray(joined.T), leader)
    rows: Ints = np.unique(joined).astype(np.int32)
    order = np.argsort(leader[rows], kind="stable")
    rows = rows[order]
    start = np.flatnonzero(np.diff(leader[rows], prepend=-1))
    sizes = np.diff(start, append=len(rows))
    of_row[rows] = np.repeat(np.arange(len(start)), sizes)
    return Groups(of_row, np.append(start, len(rows)).astype(np.int32), rows)


def _of_pairs(of_row: Ints, pairs: NDArray[np.int64]) -> Groups:
    """Each pair a group, in the order of their first rows."""
    rows = pairs[np.argsort(pairs[:, 0])].astype(np.int32)
    of_row[rows] = np.arange(len(rows), dtype=np.int32)[:, None]
    return Groups(of_row, np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1], rows.ravel())


def _joined(schedule: Schedule) -> NDArray[np.int64]:
    """Two rows each that start together; of ops that are in no lane there are none."""
    each = [np.array([*_repeated(schedule)], np.int64).reshape(-1, 2)]
    for of_pairs in pair_rows(schedule):
        first = np.repeat(of_pairs[:, :1], of_pairs.shape[1], axis=1)
        each.append(np.stack([first, of_pairs], axis=2).reshape(-1, 2))
    if schedule.loans:
        each.append(loan_rows(schedule))
    found = np.concatenate(each)
    return found[(found >= 0).all(axis=1)]


def _repeated(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """The first row and each row of ops that annotations name, where ops stand in several lanes."""
    if schedule.table.repeats:
        rows, loans = schedule.table.rows_by_op, (loan[:2] for loan in schedule.loans)
        for op in chain(schedule.gangs, *schedule.pairs, *loans):
            yield from ((rows[op][0], row) for row in rows.get(op, ()))


@kernel
def _find_leaders(one: Any, other: Any, leader: Any) -> None:
    """The first row of each group, for rows that are joined two by two."""
    for at in range(len(one)):
        first, second = one[at], other[at]
        while leader[first] != first:
            first = leader[first]
        while leader[second] != second:
            second = leader[second]
        leader[max(first, second)] = min(first, second)
    for row in range(len(leader)):
        leader[row] = leader[leader[row]]
