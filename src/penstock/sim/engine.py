"""Schedule x cost -> timeline.

With lanes fixed, time is a longest path: one pass over the graph. Only a proven schedule is timed.
"""

from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from penstock.check import require
from penstock.core.groups import groups_of, rows_by_op
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Run, run, run_wired
from penstock.cost.model import Cost, Scaled, UnitCost, refuse_overflow
from penstock.sim.details import Simulated
from penstock.sim.links import delays, links_of, wires
from penstock.sim.memory import peaks
from penstock.sim.plain import is_plain, play_plain
from penstock.sim.timeline import Timeline

Ticks = NDArray[np.int64]

DELIVERIES = ("together", "apart")
"""When the strands of a pair deliver: both at the pair's end, or each at its own end."""


def simulate(
    schedule: Schedule, cost: Cost | None = None, *, strands: str = "together"
) -> Timeline:
    """Start and end of every op, and the memory of every device.

    >>> from penstock.schedules import build
    >>> timeline = simulate(build("seq1f1b", devices=4, microbatches=8, slices=4))
    >>> float(timeline.makespan), [float(peak) for peak in timeline.peak]
    (26.25, [1.75, 1.5, 1.25, 1.0])
    """
    require(schedule)
    price = cost or UnitCost()
    if isinstance(price, UnitCost) and is_plain(schedule, price):
        end, peak, tick, grain = play_plain(schedule, price)
        return Timeline(schedule, end, tick, peak, grain, Simulated(price))
    done, tick = play(schedule, price, strands)
    peak, grain = peaks(schedule, price, done)
    return Timeline(schedule, done.end, tick, peak, grain, Simulated(price, done))


def play(schedule: Schedule, cost: Cost, strands: str) -> tuple[Run, Fraction]:
    """Times over the general graph: groups, `after`, links, any lanes."""
    links = links_of(schedule, cost)
    scaled = _with_loans(schedule, cost, _with_communication(schedule, cost))
    fine = lcm(scaled.tick.denominator, *(link.latency.denominator for link in links.values()))
    length, tick = _finer(scaled, Fraction(1, fine * _gang_sizes(schedule)))
    length = _together(schedule, length, strands)
    occupied = wires(schedule, links, tick)
    delay = delays(schedule, links, tick)
    if occupied is not None:
        return run_wired(schedule, length, delay, occupied), tick
    if int(length.sum()) + int(delay.sum()) < 2**31:
        # Half the width is twice the ops in a cache line.
        length, delay = length.astype(np.int32), delay.astype(np.int32, copy=False)
    return run(schedule, length, delay), tick


def _gang_sizes(schedule: Schedule) -> int:
    """A number that the size of every gang divides, so that shares are whole ticks."""
    rows = rows_by_op(schedule.table) if schedule.gangs else {}
    return lcm(*(len(rows[op]) for op in schedule.gangs))


def _finer(scaled: Scaled, tick: Fraction) -> tuple[Ticks, Fraction]:
    """The same lengths in smaller ticks."""
    factor = int(scaled.tick / tick)
    refuse_overflow(factor * int(scaled.ticks.max(initial=0)) * len(scaled.ticks))
    return (scaled.ticks if factor == 1 else scaled.ticks * factor), scaled.tick / factor


def _with_communication(schedule: Schedule, cost: Cost) -> Scaled:
    """Add tensor-parallel communication that nothing hides.

    Alone, a forward and an input gradient expose it; a full backward hides it behind its weight
    gradient. Inside a pair the other strand hides it, except once when all strands are forwards.
    """
    scaled = cost.durations(schedule)
    if not cost.communication:
        return scaled
    tick = Fraction(1, lcm(scaled.tick.denominator, cost.communication.denominator * 10**6))
    length, tick = _finer(scaled, tick)
    table, groups = schedule.table, groups_of(schedule)
    share = np.array(
        [float(schedule.shape.share_of_stage(s)) for s in range(schedule.shape.stages)]
    )
    exposed = table.of_kinds("FNRI")
    exposed &= ~_hidden(schedule, groups.of_row)
    extra = np.rint(share[table.stage] * float(cost.communication / tick)).astype(np.int64)
    return Scaled(np.where(exposed, length + extra, length), tick)


def _hidden(schedule: Schedule, group_of: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Rows of pairs whose communication another strand covers."""
    hidden = np.zeros(len(schedule.table), np.bool_)
    for pair in schedule.pairs:
        rows = sorted(schedule.table.row_of(op) for op in pair)
        forwards = all(op.kind in "FN" for op in pair)
        hidden[rows[:-1] if forwards else rows] = True
    return hidden


def _with_loans(schedule: Schedule, cost: Cost, scaled: Scaled) -> Scaled:
    """Move the time of lent key/value slices from the heavy op to the light one."""
    if not schedule.loans:
        return scaled
    lent = [(loan, cost.loan(loan.heavy) * loan.slices) for loan in schedule.loans]
    tick = Fraction(1, lcm(scaled.tick.denominator, *(time.denominator for _, time in lent)))
    length, tick = _finer(scaled, tick)
    length = length.copy()
    for loan, time in lent:
        length[schedule.table.row_of(loan.heavy)] -= int(time / tick)
        length[schedule.table.row_of(loan.light)] += int(time / tick)
    return Scaled(np.maximum(length, 0), tick)


def _together(schedule: Schedule, length: Ticks, strands: str) -> Ticks:
    """Lengths from the start of a group to the end of each member.

    Members in one lane run one after the other, members in different lanes side by side; a gang
    shares its op's cost evenly.
    """
    groups = groups_of(schedule)
    if not len(groups.rows):
        return length
    length = length.copy()
    lane = schedule.table.lane
    gangs = {schedule.table.row_of(op): op for op in schedule.gangs}
    for group in range(len(groups.start) - 1):
        rows = groups.rows[groups.start[group] : groups.start[group + 1]]
        if int(rows[0]) in gangs:
            length[rows] //= len(rows)
        own = np.zeros(len(rows), np.int64)
        for at in set(lane[rows].tolist()):
            here = lane[rows] == at
            own[here] = np.cumsum(length[rows][here])
        length[rows] = own if strands == "apart" else own.max()
    return length
