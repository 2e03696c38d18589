"""Two steps in a row: what a device may begin of the second before all have ended the first.

The makespan of a step says how long it takes alone. In a run steps follow each other, and devices
that end early could begin early, if nothing made them wait for the others. An update that needs the
norm of all stages does: then no op of the next step is free to begin. With early updates the first
forwards of each device are (core/begun.py).
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from penstock.core.begun import first_forwards
from penstock.core.gangs import ChosenRows
from penstock.core.ops import Op
from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import Shape
from penstock.core.table import Table
from penstock.cost.model import Cost
from penstock.sim import simulate


def time_between_steps(schedule: Schedule, cost: Cost) -> tuple[Fraction, Fraction]:
    """What a step adds to the one before it, where updates are validated before they are made, and
    where they are validated after.

    >>> from penstock.cost.model import UnitCost
    >>> from penstock.schedules import build
    >>> zb_h2 = build("zb-h2", devices=4, microbatches=8)
    >>> [int(time) for time in time_between_steps(zb_h2, UnitCost())]
    [27, 24]
    """
    alone = simulate(schedule, cost).makespan
    none = np.zeros(len(schedule.table), np.bool_)
    before, after = (
        simulate(two_steps(schedule, free), cost).makespan - alone
        for free in (none, first_forwards(schedule))
    )
    return before, after


def two_steps(schedule: Schedule, free: ChosenRows) -> Schedule:
    """The schedule and once more behind it; in the second step the first op of a device that is not
    `free` starts when the first step has ended on all devices."""
    table, count = schedule.table, schedule.shape.microbatches
    lanes = [(device, stream, list(ops)) for device, stream, ops in table.lanes()]
    rows = [
        (device, stream, [*ops, *(_later(op, count) for op in ops)])
        for device, stream, ops in lanes
    ]
    ends = [ops[-1] for _, stream, ops in lanes if stream == "compute"]
    waits = []
    for lane, (_, stream, ops) in enumerate(lanes):
        begun = int(free[table.lane_start[lane] : table.lane_start[lane + 1]].sum())
        if stream == "compute" and begun < len(ops):
            waits += [After(_later(ops[begun], count), end) for end in ends]
    pairs = (tuple(_later(op, count) for op in pair) for pair in schedule.pairs)
    loans = ((_later(one, count), _later(other, count), n) for one, other, n in schedule.loans)
    orders = (After(_later(op, count), _later(earlier, count)) for op, earlier in schedule.after)
    return replace(
        schedule,
        shape=_twice(schedule.shape),
        table=Table.of(rows),
        pairs=(*schedule.pairs, *pairs),
        loans=(*schedule.loans, *(Loan(*loan) for loan in loans)),
        gangs=(*schedule.gangs, *(_later(op, count) for op in schedule.gangs)),
        after=(*schedule.after, *orders, *waits),
        shares=(*schedule.shares, *((_later(op, count), share) for op, share in schedule.shares)),
        derived={},
    )


def _later(op: Op, count: int) -> Op:
    return op._replace(mb=op.mb + count)


def _twice(shape: Shape) -> Shape:
    return replace(shape, slices=shape.slices * 2, slice_share=shape.slice_share * 2)
