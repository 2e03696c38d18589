"""Times of ops and transfers put together, and played over the general graph: groups, `after`,
links, any lanes.

What does not depend on the times of single ops is worked out once, so that the same schedule can be
played many times with other times.
"""

from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.groups import groups_of
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Run, Wires, play_schedule
from penstock.core.table import Ticks
from penstock.cost.model import Cost
from penstock.cost.shares import Scaled, finer, share_column, shares_of
from penstock.sim.links import finest, links_of, traffic_of
from penstock.sim.loans import with_exchanges, with_loans


class Prepared(NamedTuple):
    """A schedule with the times of its ops and transfers."""

    schedule: Schedule
    cost: Cost
    strands: str
    length: Ticks
    """What each op takes alone."""
    tick: Fraction
    delay: Ticks
    wires: Wires | None

    def play(self, length: Ticks) -> Run:
        """Starts and ends where ops alone take so long."""
        schedule = self.schedule
        length = _together(schedule, length, self.strands)
        length = with_exchanges(schedule, self.cost, length, self.tick)
        if self.wires is not None:
            return play_schedule(schedule, length, self.delay, self.wires)
        delay = self.delay
        if int(length.sum()) + int(delay.sum()) < 2**31:
            # Half the width is twice the ops in a cache line.
            length, delay = length.astype(np.int32), delay.astype(np.int32, copy=False)
        return play_schedule(schedule, length, delay)


def play(schedule: Schedule, cost: Cost, strands: str) -> tuple[Run, Fraction]:
    """Starts and ends, and what a tick of them is."""
    prepared = assemble_times(schedule, cost, strands)
    return prepared.play(prepared.length), prepared.tick


def assemble_times(schedule: Schedule, cost: Cost, strands: str, shortest: int = 1) -> Prepared:
    """Times in ticks that divide all of them; the shortest op takes at least so many."""
    links = links_of(schedule, cost)
    scaled = with_loans(schedule, cost, _with_communication(schedule, cost))
    fine = finest(schedule, links, scaled) * _gang_sizes(schedule)
    taken = scaled.ticks[scaled.ticks > 0].min(initial=shortest)
    grain = -(-shortest // max(1, int(taken * scaled.tick * fine)))
    length, tick = finer(scaled, Fraction(1, fine * grain))
    return Prepared(schedule, cost, strands, length, tick, *traffic_of(schedule, links, tick))


def _gang_sizes(schedule: Schedule) -> int:
    """A number that the size of every gang divides, so that shares are whole ticks."""
    rows = schedule.table.rows_by_op if schedule.gangs else {}
    return lcm(*(len(rows[op]) for op in schedule.gangs))


def _with_communication(schedule: Schedule, cost: Cost) -> Scaled:
    """Add tensor-parallel communication that nothing hides.

    Alone, a forward and an input gradient expose it; a full backward hides it behind its weight
    gradient. Inside a pair the other strand hides it, except once when all strands are forwards.
    """
    scaled = cost.durations(schedule)
    if not cost.communication:
        return scaled
    worth = cost.communication / shares_of(schedule.shape).scale
    tick = Fraction(1, lcm(scaled.tick.denominator, worth.denominator))
    length, tick = finer(scaled, tick)
    exposed = schedule.table.of_kinds("FNRI") & ~_hidden(schedule)
    extra = share_column(schedule) * int(worth / tick)
    return Scaled(np.where(exposed, length + extra, length), tick)


def _hidden(schedule: Schedule) -> NDArray[np.bool_]:
    """Rows of pairs whose communication another strand covers."""
    hidden = np.zeros(len(schedule.table), np.bool_)
    row_of = schedule.table.rows_by_op if schedule.pairs else {}
    for pair in schedule.pairs:
        rows = sorted(row_of[op][0] for op in pair)
        forwards = all(op.kind in "FN" for op in pair)
        hidden[rows[:-1] if forwards else rows] = True
    return hidden


def _together(schedule: Schedule, length: Ticks, strands: str) -> Ticks:
    """Lengths from the start of a group to the end of each member.

    Members in one lane run one after the other, members in different lanes side by side; a gang
    shares its op's cost evenly.
    """
    groups = groups_of(schedule)
    if not len(groups.rows):
        return length
    rows, length = groups.rows, length.copy()
    members = schedule.table.rows_by_op if schedule.gangs else {}
    for op in schedule.gangs:
        length[members[op]] //= len(members[op])
    first, of_run = schedule.derive("runs of groups", _runs_of_groups)
    own = np.cumsum(length[rows])
    own -= (own[first] - length[rows[first]])[of_run]
    if strands == "together":
        own = np.maximum.reduceat(own, groups.start[:-1])[groups.of_row[rows]]
    length[rows] = own
    return length


def _runs_of_groups(schedule: Schedule) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of a group that share a lane are neighbours: where each run of them begins among the
    rows of groups, and the run of each row."""
    groups = groups_of(schedule)
    of_row, lane = groups.of_row[groups.rows], schedule.table.lane[groups.rows]
    begins = (np.diff(of_row, prepend=-1) != 0) | (np.diff(lane, prepend=-1) != 0)
    return np.flatnonzero(begins), np.cumsum(begins) - 1
