"""What is put together over devices: the parts of each collective, and the order of all of them.

Where every device has a part of something and a reader needs all parts, one collective does what
messages from everyone would do. Its parts are writes of the meaning table. Hosts block each other
if they start collectives in different orders, so there is one order for all: that in which their
last parts would be written if every op took one tick. A host that has come to the last part of one
has come to the parts of all before it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import ALL, BUFFERS, COLLECTIVE, Buf
from penstock.core.homes import sum_parts
from penstock.core.host_order import unit_ends
from penstock.core.meaning import kinds_writing, rules
from penstock.core.rules import NAMES, NUMBER_OF
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import Ints

_NO_UNIT = -1


@dataclass(frozen=True, eq=False)
class Collectives:
    """Columns of the collectives of a step, in the one order in which all devices start them."""

    buffer: Ints
    number: Ints
    """Which sum of a name it is; ALL where the parts are those of shards."""
    unit: Ints
    """-1 where the parts belong to whole stages."""
    start: Ints
    rows: Ints
    """`rows[start[c] : start[c + 1]]` write the parts of collective c."""

    def __len__(self) -> int:
        return len(self.buffer)

    def buf(self, at: int, shape: Shape) -> Buf:
        """What a collective brings."""
        unit = int(self.unit[at])
        where = (0, 0) if unit == _NO_UNIT else shape.mb_and_slice(unit)
        return Buf(NAMES[int(self.buffer[at])], int(self.number[at]), *where)

    def parts(self, at: int) -> list[int]:
        """Rows that write the parts of a collective."""
        found: list[int] = self.rows[self.start[at] : self.start[at + 1]].tolist()
        return found


def collectives_of(schedule: Schedule) -> Collectives:
    """The collectives of a schedule, derived once and kept with it."""
    return schedule.derive("collectives", _build)


def _build(schedule: Schedule) -> Collectives:
    parts = [_no_parts(), *(_parts(schedule, name) for name in COLLECTIVE)]
    buffer, number, unit, row = np.concatenate(parts, axis=1)
    if not len(row):
        return Collectives(buffer, number, unit, np.zeros(1, np.int32), row)
    keys, of_part = np.unique(np.stack([buffer, number, unit]), axis=1, return_inverse=True)
    complete = np.zeros(keys.shape[1], np.int64)
    np.maximum.at(complete, of_part.reshape(-1), unit_ends(schedule)[row])
    in_order = np.argsort(complete, kind="stable")
    place = np.argsort(in_order)[of_part.reshape(-1)]
    start = np.searchsorted(np.sort(place), np.arange(len(in_order) + 1)).astype(np.int32)
    buffer, number, unit = keys[:, in_order]
    return Collectives(buffer, number, unit, start, row[np.argsort(place, kind="stable")])


def _no_parts() -> NDArray[np.int32]:
    return np.zeros((4, 0), np.int32)


def _parts(schedule: Schedule, name: str) -> NDArray[np.int32]:
    """Buffer, number, unit and row of every part of one name."""
    table, shape = schedule.table, schedule.shape
    kinds = [k for k in kinds_writing(name) & table.kinds if _writes(shape, k, name)]
    if not kinds:
        return _no_parts()
    code = NUMBER_OF[name]
    if BUFFERS[name].per == "home":
        parts = sum_parts(schedule, name, kinds)
        found = [(code, number, _NO_UNIT, row) for number, row in parts]
        return np.array(found, np.int32).reshape(-1, 4).T
    rows = np.flatnonzero(table.of_kinds(kinds)).astype(np.int32)
    return np.stack([np.full_like(rows, code), np.full_like(rows, ALL), schedule.unit[rows], rows])


def _writes(shape: Shape, kind: str, name: str) -> bool:
    return any(rule.buffer == name for rule in rules(shape)[kind][1])
