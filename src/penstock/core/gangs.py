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


class Gang(NamedTuple):
    """The rows of one op that several devices do."""

    home: int
    helpers: tuple[int, ...]


def gangs_of(schedule: Schedule) -> tuple[Gang, ...]:
    """All of them, derived once and kept with the schedule; missing ops are the checker's."""
    return schedule.derive("gangs", _build) if schedule.gangs else ()


def helping_rows(schedule: Schedule) -> NDArray[np.bool_]:
    """Rows of members away from home."""
    found = np.zeros(len(schedule.table), np.bool_)
    found[[row for gang in gangs_of(schedule) for row in gang.helpers]] = True
    return found


def _build(schedule: Schedule) -> tuple[Gang, ...]:
    rows = schedule.table.rows_by_op
    alone = ~schedule.table.of_kinds(SHARD_KINDS)
    alone[[row for op in schedule.gangs for row in rows.get(op, [])]] = False
    present = [op for op in schedule.gangs if op in rows]
    return tuple(_gang(rows[op], _home(schedule, op, alone), schedule) for op in present)


def _gang(rows: list[int], home: int, schedule: Schedule) -> Gang:
    """Where no member is at home, the first one stands for all, and the checker finds it there."""
    at_home = [row for row in rows if schedule.table.device[row] == home]
    first = (at_home or rows)[0]
    return Gang(first, tuple(row for row in rows if row != first))


def _home(schedule: Schedule, op: Op, alone: NDArray[np.bool_]) -> int:
    """The device that has most of what one device does of the microbatch on the stage, else of the
    stage; of a stage that only gangs do, the first member of the op."""
    table = schedule.table
    of_stage = alone & (table.stage == op.stage)
    for rows in (of_stage & (table.mb == op.mb), of_stage):
        if rows.any():
            return int(np.bincount(table.device[rows]).argmax())
    return int(table.device[table.rows_by_op[op][0]])
