"""NamedRows of the ops that annotations name, found for all of them at once.

A schedule with copies and gathers names as many ops in `after` as it has. Looking each one up in a
dictionary of all ops takes longer than proving their order, so they are found as columns.
"""

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from penstock.core.holds import Holds
from penstock.core.schedule import Schedule
from penstock.core.table import OpColumns, known_columns

NamedRows = NDArray[np.int64]


def after_rows(schedule: Schedule) -> NamedRows:
    """For each `after` the first rows of its two ops, -1 for one that is in no lane; kept."""
    return schedule.derive("rows of after", _after_rows)


def _after_rows(schedule: Schedule) -> NamedRows:
    table, after = schedule.table, schedule.after
    if isinstance(after, Holds):
        return np.stack([table.first_rows_of(each) for each in (after.ops, after.earlier)], axis=1)
    return table.first_rows([*chain(*after)]).reshape(-1, 2)


def pair_rows(schedule: Schedule) -> list[NamedRows]:
    """The same of pairs, with a row for each pair: those that have as many strands together."""
    return schedule.derive("rows of pairs", _pair_rows)


def _pair_rows(schedule: Schedule) -> list[NamedRows]:
    columns = schedule.derive("pairs as columns", _pair_columns)
    return [
        schedule.table.first_rows_of(ops).reshape(-1, length) for length, ops in columns.items()
    ]


def _pair_columns(schedule: Schedule) -> dict[int, OpColumns]:
    """The ops of pairs by the number of strands; they stay the same when ops are added."""
    lengths = [*map(len, schedule.pairs)]
    of_each = {
        length: chain(*(pair for pair, count in zip(schedule.pairs, lengths) if count == length))
        for length in dict.fromkeys(lengths)
    }
    return {length: known_columns([*ops]) for length, ops in of_each.items()}


def loan_rows(schedule: Schedule) -> NamedRows:
    """The same of loans: the row that lends and the one that helps."""
    return schedule.derive("rows of loans", _loan_rows)


def _loan_rows(schedule: Schedule) -> NamedRows:
    columns = schedule.derive("loans as columns", _loan_columns)
    return np.stack([schedule.table.first_rows_of(ops) for ops in columns], axis=1)


def _loan_columns(schedule: Schedule) -> tuple[OpColumns, OpColumns]:
    """The ops of loans; they stay the same when others are added."""
    heavy, light, _ = zip(*schedule.loans) if schedule.loans else ((), (), ())
    return known_columns(heavy), known_columns(light)


def are_pairs_braided(schedule: Schedule) -> bool:
    """Whether the strands of every pair are neighbours in one lane, and in no other pair."""
    return not schedule.pairs or schedule.derive("all pairs are braided", _braided)


def _braided(schedule: Schedule) -> bool:
    rows, lane = [np.sort(each, axis=1) for each in pair_rows(schedule)], schedule.table.lane
    every = np.concatenate([np.zeros(0, np.int64), *(each.ravel() for each in rows)])
    if schedule.table.repeats or (every < 0).any() or len(np.unique(every)) < len(every):
        return False
    return all(
        bool((np.diff(each, axis=1) == 1).all() and (lane[each[:, 0]] == lane[each[:, -1]]).all())
        for each in rows
    )
