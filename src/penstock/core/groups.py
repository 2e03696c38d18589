"""Ops that start and end together: pairs, loans and gangs are one thing to a clock.

A pair braids ops of one lane, a gang spreads one op over several lanes, a loan runs two ops of two
lanes in lock-step. In all three the members start when every one of them may start, and end
together; so the graph sees one group of rows.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.named_rows import are_pairs_braided, pair_rows
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
    members = _members(schedule) if schedule.pairs or schedule.loans or schedule.gangs else []
    for group, rows in enumerate(members):
        of_row[rows] = group
    start = np.cumsum([0, *(len(rows) for rows in members)], dtype=np.int32)
    flat = [row for rows in members for row in rows]
    return Groups(of_row, start, np.array(flat, np.int32))


def _of_pairs(of_row: Ints, pairs: NDArray[np.int64]) -> Groups:
    """Each pair a group, in the order of their first rows."""
    rows = pairs[np.argsort(pairs[:, 0])].astype(np.int32)
    of_row[rows] = np.arange(len(rows), dtype=np.int32)[:, None]
    return Groups(of_row, np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1], rows.ravel())


def _members(schedule: Schedule) -> list[list[int]]:
    """Rows of each group, ascending; groups that share a row are one."""
    rows = schedule.table.rows_by_op
    sets = [
        *([row for op in pair for row in rows.get(op, [])] for pair in schedule.pairs),
        *(rows.get(op, []) for op in schedule.gangs),
        *(rows.get(loan.heavy, []) + rows.get(loan.light, []) for loan in schedule.loans),
    ]
    leader: dict[int, int] = {}

    def find(row: int) -> int:
        while leader.setdefault(row, row) != row:
            row = leader[row]
        return row

    for together in sets:
        for row in together:
            leader[find(row)] = find(together[0])
    merged: dict[int, list[int]] = {}
    for row in sorted(leader):
        merged.setdefault(find(row), []).append(row)
    return list(merged.values())
