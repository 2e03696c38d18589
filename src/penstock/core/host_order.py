"""In which order one host deals with the lanes of its device.

A device has one lane per stream, but one host starts the ops of all of them. It may start nothing
that waits for what it starts later, on whatever device. The order in which the ops would end if
each took one tick has this property: everything an op waits for ends before it. Copies to the host
and back take no time in this order, as starting one takes the host none: each is started behind
what it waits for, not behind ops that it could run beside.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.core.meaning import kinds_reading, kinds_writing
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import play_schedule
from penstock.core.table import Ticks

HOST_COPIES = kinds_writing("host") | kinds_reading("host")
"""Kinds of ops that copy to the host and back."""


def unit_ends(schedule: Schedule) -> Ticks:
    """When each row would end if every op took one tick, derived once and kept."""
    return schedule.derive(
        "unit ends", lambda s: play_schedule(s, np.ones(len(s.table), np.int64)).end
    )


def host_order(schedule: Schedule, device: int) -> NDArray[np.int64]:
    """The rows of all lanes of a device in the order in which its host deals with them, derived
    once and kept."""
    return schedule.derive(f"host order {device}", lambda found: _in_order(found, device))


def _in_order(schedule: Schedule, device: int) -> NDArray[np.int64]:
    table = schedule.table
    rows = np.flatnonzero(table.device == device)
    if len(np.unique(table.lane[rows])) > 1:
        computes = np.array(table.lane_stream)[table.lane[rows]] == "compute"
        copies = table.of_kinds(HOST_COPIES)[rows]
        # side streams are told first, but copies only after what ends with them: they wait for it
        keys = unit_ends(schedule)[rows], computes, copies, _told_ends(schedule)[rows]
        rows = rows[np.lexsort(keys)]
    return rows


def _told_ends(schedule: Schedule) -> Ticks:
    """The same where copies take no time."""
    if not schedule.table.kinds & HOST_COPIES:
        return unit_ends(schedule)
    lengths = np.where(schedule.table.of_kinds(HOST_COPIES), 0, 1)
    return schedule.derive("told ends", lambda s: play_schedule(s, lengths).end)
