"""How much of a step is communication that nothing hides.

Inside a cell an op waits for other ranks, so exposed time is part of the op. Between stages, and
over copies of the weights, transfers and sums run beside the ops: what of them is exposed is what
the step would be shorter by if they took no time.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from penstock.core.schedule import Schedule
from penstock.core.transfers import moves_of
from penstock.cost.cell_cost import CellCost
from penstock.sim.engine import simulate
from penstock.sim.links import transfer_parts
from penstock.sim.timeline import Timeline


@dataclass(frozen=True)
class ExposedTimes:
    """Seconds and bytes of one rank of each device, in one step."""

    timeline: Timeline
    computing: tuple[float, ...]
    """Of ops that compute: copies to the host run beside them."""
    inside: tuple[float, ...]
    """Communication with other ranks of the cell."""
    inside_exposed: tuple[float, ...]
    """What of it no computing hides."""
    sent: dict[str, tuple[float, ...]]
    """Bytes along each axis of the cell, to other stages, to copies of the weights, and to tensor
    ranks that hold the same parameters."""
    boundaries_exposed: Fraction
    """What the step would be shorter by if nothing took time between stages."""
    copies_exposed: Fraction
    """The same for sums and gathers over copies."""


def exposed_times(schedule: Schedule, cost: CellCost) -> ExposedTimes:
    """Simulate a step, and say what its communication costs."""
    timeline = simulate(schedule, cost)
    inside, copies = cost.inside(schedule), cost.between_copies(schedule)
    without_copies = replace(cost, copies=replace(cost.copies, count=1))
    sent = {**inside.sent, "stages": _handed_on(schedule), **copies.sent}
    return ExposedTimes(
        timeline,
        _by_device(schedule, cost.computing(schedule) * _computes(schedule)),
        _by_device(schedule, inside.total),
        _by_device(schedule, inside.exposed),
        {axis: _by_device(schedule, each) for axis, each in sent.items() if each.any()},
        timeline.makespan - simulate(schedule, cost.without_boundaries()).makespan,
        timeline.makespan - simulate(schedule, without_copies).makespan,
    )


def _computes(schedule: Schedule) -> NDArray[np.bool_]:
    """Whether each row is on the compute stream of its device."""
    streams = np.array([stream == "compute" for stream in schedule.table.lane_stream])
    return np.asarray(streams[schedule.table.lane])


def _handed_on(schedule: Schedule) -> NDArray[np.float64]:
    """Bytes that each row sends to other stages."""
    parts, scale = transfer_parts(schedule)
    found = np.zeros(len(schedule.table))
    np.add.at(found, moves_of(schedule).writer, parts / scale)
    return found


def _by_device(schedule: Schedule, rows: NDArray[np.float64]) -> tuple[float, ...]:
    device, count = schedule.table.device, schedule.shape.devices
    return tuple(np.bincount(device, rows, count).tolist())
