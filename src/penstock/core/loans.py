"""What help with attention work brings into the graph: reads of one row from the other, both ways.

Whoever is helped sends queries, keys and values and gets a partial result back: an op that lends
some slices to another op, or the member of a gang at home, which shares with each of the others.
Both rows run in lock-step, so these reads order nothing beyond that; but they are transfers, and as
such derived, planned and sent like any other. The helps of a schedule are numbered: its loans, then
the members of its gangs.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import Buf
from penstock.core.gangs import gangs_of
from penstock.core.meaning import HELPER, LENDER
from penstock.core.named_rows import loan_rows
from penstock.core.rules import NUMBER_OF
from penstock.core.schedule import Schedule


class GangShare(NamedTuple):
    """The part of a slice's queries that one member of a gang attends with."""

    number: int
    """Counted from the beginning of the slice; the member at home has the last one."""
    members: int


class Help(NamedTuple):
    """Two rows of two devices, of which one does a part of the other's attention."""

    helped: int
    helping: int
    share: range | GangShare
    """The slices whose keys and values are lent, or the queries that a member of a gang has."""


def helps_of(schedule: Schedule) -> tuple[Help, ...]:
    """All of them, derived once and kept with the schedule; missing ops are the checker's."""
    return schedule.derive("helps", _build) if schedule.loans or schedule.gangs else ()


def _build(schedule: Schedule) -> tuple[Help, ...]:
    return (*_lent(schedule), *_shared(schedule))


def _lent(schedule: Schedule) -> Iterator[Help]:
    """Loans; an op that lends to several lends slices one behind the other."""
    lent_before = Counter[int]()
    for (heavy, light), loan in zip(loan_rows(schedule).tolist(), schedule.loans):
        if heavy >= 0 and light >= 0:
            first = lent_before[heavy]
            lent_before[heavy] += loan.slices
            yield Help(heavy, light, range(first, first + loan.slices))


def _shared(schedule: Schedule) -> Iterator[Help]:
    """Members of gangs away from home."""
    for home, helpers in gangs_of(schedule):
        for number, row in enumerate(helpers):
            yield Help(home, row, GangShare(number, 1 + len(helpers)))


_READS = [
    (reader, writer, NUMBER_OF[ref.buffer])
    for reader, reading in enumerate((LENDER, HELPER))
    for writer, writing in enumerate((LENDER, HELPER))
    for ref in reading.reads
    if ref in writing.writes
]
"""Who reads what from whom: the row that is helped (0) and the one that helps (1)."""


def loan_edges(schedule: Schedule) -> NDArray[np.int32]:
    """Edges (reader row, writer row, buffer) of all helps."""
    if not helps_of(schedule):
        return np.zeros((0, 3), np.int32)
    ends = np.array([each[:2] for each in helps_of(schedule)], np.int32).reshape(-1, 2)
    edges = np.empty((len(ends), len(_READS), 3), np.int32)
    for number, (reader, writer, buffer) in enumerate(_READS):
        edges[:, number, 0], edges[:, number, 1] = ends[:, reader], ends[:, writer]
        edges[:, number, 2] = buffer
    return edges.reshape(-1, 3)


def loans_by_rows(schedule: Schedule) -> dict[tuple[int, int], int]:
    """Number of the help between two rows, whichever of them helps."""
    numbered = [(number, *each[:2]) for number, each in enumerate(helps_of(schedule))]
    return {ends: n for n, one, other in numbered for ends in ((one, other), (other, one))}


def loan_buffer(schedule: Schedule, name: str, number: int) -> Buf:
    """The buffer instance of a help."""
    helped = schedule.table.op(helps_of(schedule)[number].helped)
    return Buf(name, number, helped.mb, helped.slice)
