"""Schedule x cost -> timeline.

With lanes fixed, time is a longest path: one pass over the graph. Only a proven schedule is timed.
"""

from penstock.check import require
from penstock.core.schedule import Schedule
from penstock.cost.model import Cost, UnitCost
from penstock.errors import ShapeError, nearest
from penstock.sim.details import Simulated
from penstock.sim.memory import peaks
from penstock.sim.plain import is_plain, play_plain
from penstock.sim.play import play
from penstock.sim.timeline import Timeline

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
    if strands not in DELIVERIES:
        raise ShapeError(f"strands is {strands!r}", hint=nearest(strands, DELIVERIES))
    require(schedule)
    price = cost or UnitCost()
    if isinstance(price, UnitCost) and is_plain(schedule, price):
        end, peak, tick, grain = play_plain(schedule, price)
        return Timeline(schedule, end, tick, peak, grain, Simulated(price))
    done, tick = play(schedule, price, strands)
    peak, grain = peaks(schedule, price, done)
    return Timeline(schedule, done.end, tick, peak, grain, Simulated(price, done, strands))
