"""Who of a gang is at home, and who helps.

An op that several devices do together has one member at home: there are the weights of its stage,
and there it reads and writes what its kind reads and writes. The others only help while it runs:
the table knows no buffer of theirs, but for what they exchange with the member at home.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.ops import SHARD_KINDS, Op
from penstock.core.schedule import Schedule

ChosenRows = NDArray[np.bool_]


class Gang(NamedTuple):
    """The rows of one op that several devices do."""

    home: int
    helpers: tuple[int, ...]


def gangs_of(schedule: Schedule) -> tuple[Gang, ...]:
    """All of them, derived once and kept with the schedule; missing ops are the checker's."""
    return schedule.derive("gangs", _build) if schedule.gangs else ()


def helping_rows(schedule: Schedule) -> ChosenRows:
    """Rows of members away from home."""
    found = np.zeros(len(schedule.table), np.bool_)
    found[[row for gang in gangs_of(schedule) for row in gang.helpers]] = True
    return found


def _build(schedule: Schedule) -> tuple[Gang, ...]:
    rows = schedule.table.rows_by_op
    staged = ~schedule.table.of_kinds(SHARD_KINDS)
    alone = staged.copy()
    alone[[row for op in schedule.gangs for row in rows.get(op, [])]] = False
    present = [op for op in schedule.gangs if op in rows]
    return tuple(_gang(rows[op], _home(schedule, op, alone, staged), schedule) for op in present)


def _gang(rows: list[int], home: int, schedule: Schedule) -> Gang:
    """Where no member is at home, the first one stands for all, and the checker finds it there."""
    at_home = [row for row in rows if schedule.table.device[row] == home]
    first = (at_home or rows)[0]
    return Gang(first, tuple(row for row in rows if row != first))


def _home(schedule: Schedule, op: Op, alone: ChosenRows, staged: ChosenRows) -> int:
    """The device that has most of what one device does of the microbatch on the stage, else of the
    stage; of a stage that only gangs do, the one that is in most of them."""
    table = schedule.table
    of_stage = table.stage == op.stage
    choices = (alone & of_stage & (table.mb == op.mb), alone & of_stage, staged & of_stage)
    rows = next(rows for rows in choices if rows.any())
    return int(np.bincount(table.device[rows]).argmax())
