"""The best order there is: every order of a step's ops, within a memory limit, by a solver.

Heuristics order ops by rules that are right most of the time. For small steps the best order can be
found and proven to be the best; for larger ones an order can be improved for a while, and a proven
bound says how far from the best it may still be. The ops, and where they run, are those of a
schedule that is given to begin with; so any placement, any slices and any kinds of op will do.

Of two orders that take equally long the one with fewer copies is better. The solver runs on one
core and counts its own work instead of the clock, so that a result repeats.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.cost.model import Cost
from penstock.errors import ShapeError
from penstock.search.exact.model import Model
from penstock.search.joint.net import Net, Offloads
from penstock.search.offload.room import hold_for_room
from penstock.sim import Timeline, simulate
from penstock.transform.offload import Channels, Window, add_copies, take_turns


@dataclass(frozen=True)
class Goal:
    """What is to be short, of a timeline and in the solver's terms."""

    worth: Callable[[Timeline], Fraction]
    begins: Callable[[Net], list[int] | None]
    """From when on the time of each device counts; None where that depends on the order."""


def _first_starts(net: Net) -> list[int] | None:
    """Where all microbatches are alike, a device starts when the pipeline first reaches it."""
    return [min(net.heads[row] for row in lane) for lane in net.compute] if net.alike else None


MAKESPAN = Goal(lambda timeline: timeline.makespan, lambda net: [0] * len(net.compute))
"""The whole step, from the first start to the last end."""
SPAN = Goal(lambda timeline: timeline.span, _first_starts)
"""The longest single device, as for optimizers that need not wait for each other."""


class Solution(NamedTuple):
    """An order, what it is worth, and a value that no order can be below."""

    schedule: Schedule
    value: Fraction
    bound: Fraction

    @property
    def optimal(self) -> bool:
        return self.value == self.bound


def solve(
    start: Schedule,
    cost: Cost,
    *,
    goal: Goal = MAKESPAN,
    limit: Fraction | None = None,
    offloads: Offloads | None = None,
    channels: Channels = (),
    effort: float = 60,
) -> Solution:
    """The best order of the ops of `start` that is found with so much effort, or `start` itself.

    No device holds more than `limit`; activations of `offloads` may go to the host, over channels
    that devices may share. `effort` is in seconds of a usual core.
    """
    begun = simulate(start, cost)
    _refuse_full(begun, limit)
    worth = goal.worth(begun)
    net = Net.of(start, cost, offloads or {})
    least = _least(net, goal) * net.tick
    if worth == least and not _copies(start):
        return Solution(start, worth, least)
    model = Model(net, _windows(begun, net))
    model.follow()
    model.take_turns(channels)
    if limit is not None:
        model.hold_at_most(int(limit // net.grain))
    model.minimise(goal.begins(net), int(worth / net.tick))
    found, bound = model.run(effort)
    best = Solution(start, worth, max(bound * net.tick, least))
    if found:
        better = _ordered(start, net, found, channels)
        if limit is not None:
            better = hold_for_room(better, cost, [limit] * len(net.compute))
        value = goal.worth(simulate(better, cost))
        if (value, _copies(better)) < (worth, _copies(start)):
            best = best._replace(schedule=better, value=value)
    return best


def _least(net: Net, goal: Goal) -> int:
    """What no order can be below, whatever its memory: a device's work, and what leads to it."""
    work = [sum(net.length[row] for row in lane) for lane in net.compute]
    begins = goal.begins(net)
    if begins is None:
        return max(work)
    heads, tails = (
        [min(side[row] for row in lane) for lane in net.compute] for side in (net.heads, net.tails)
    )
    ends = [sum(parts) for parts in zip(heads, work, tails if not any(begins) else [0] * len(work))]
    return max(end - begin for end, begin in zip(ends, begins))


def _copies(schedule: Schedule) -> int:
    return int(schedule.table.of_kinds("OL").sum())


def _refuse_full(begun: Timeline, limit: Fraction | None) -> None:
    if limit is not None and max(begun.peak) > limit:
        raise ShapeError(
            f"{begun.name} holds {float(max(begun.peak)):g} on a device, above the limit of "
            f"{float(limit):g}: the search begins with an order that keeps to it",
            hint="give a higher limit, or another schedule to begin with",
        )


def _windows(begun: Timeline, net: Net) -> dict[int, Window]:
    """When the ops of the first order run, by row of the net."""
    rows, factor = net.schedule.table.rows_by_op, begun.tick / net.tick
    return {
        rows[op][0]: Window(int(start * factor), int(end * factor))
        for op, start, end in zip(
            begun.schedule.table.ops(), begun.start.tolist(), begun.end.tolist()
        )
    }


def _ordered(start: Schedule, net: Net, found: dict[int, Window], channels: Channels) -> Schedule:
    """The schedule whose lanes have the order of the windows."""
    op_of, by_time = net.schedule.table.op, found.__getitem__
    lanes = [
        (device, "compute", [op_of(row) for row in sorted(lane, key=by_time)])
        for device, lane in enumerate(net.compute)
    ]
    windows = {op_of(row): window for row, window in found.items()}
    shares = {op: share for op, share in net.schedule.shares if op in windows}
    rising = {op_of(row).kind for row in found if net.takes[row] + max(0, net.frees[row]) > 0}
    bare = Schedule.from_lanes(start.name, start.shape, lanes)
    full = add_copies(bare, windows, shares=shares, taking=rising)
    return take_turns(full, windows, channels).renamed(start.name)
