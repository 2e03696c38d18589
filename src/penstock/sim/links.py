"""What transfers cost: latency on an edge of the graph, occupancy on a link between devices."""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.graph import AFTER, graph_of
from penstock.core.meaning import BUFFERS
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Wires
from penstock.core.transfers import moves_of
from penstock.cost.model import Cost, Link, shares_of

Ticks = NDArray[np.int64]


def links_of(schedule: Schedule, cost: Cost) -> dict[tuple[int, int], Link]:
    """The links that some read crosses, without those that cost nothing."""
    count = schedule.shape.devices
    used = np.zeros(count * count, np.bool_)
    used[schedule.derive("crossings", _crossings)] = True
    pairs = [divmod(int(pair), count) for pair in np.flatnonzero(used)]
    links = {(a, b): cost.link(a, b) for a, b in pairs if a != b}
    return {edge: link for edge, link in links.items() if any(link)}


def _crossings(schedule: Schedule) -> NDArray[np.int32]:
    """Source and target device of every edge of the graph, as one number."""
    graph, device = graph_of(schedule), schedule.table.device
    return device[graph.writer] * np.int32(schedule.shape.devices) + device[graph.reader]


def delays(schedule: Schedule, links: dict[tuple[int, int], Link], tick: Fraction) -> NDArray[Any]:
    """Latency of every edge of the graph, in ticks; empty where there is none."""
    if not links:
        return np.zeros(0, np.int64)
    count = schedule.shape.devices
    latency: NDArray[Any] = np.zeros(count * count, np.int64)
    for (source, target), link in links.items():
        latency[source * count + target] = int(link.latency / tick)
    if latency.max() < 2**31:
        latency = latency.astype(np.int32)
    found = latency[schedule.derive("crossings", _crossings)]
    if schedule.after:
        found[graph_of(schedule).buffer == AFTER] = 0
    return found


def wires(schedule: Schedule, links: dict[tuple[int, int], Link], tick: Fraction) -> Wires | None:
    """Links that transfers occupy, or none where bytes cost nothing."""
    if not any(link.per_byte for link in links.values()):
        return None
    moves, device, count = moves_of(schedule), schedule.table.device, schedule.shape.devices
    source, target = device[moves.writer], device[moves.reader]
    busy = np.zeros(len(moves.writer), np.int64)
    latency = np.zeros(len(moves.writer), np.int64)
    size = transfer_bytes(schedule)
    for (a, b), link in links.items():
        here = (source == a) & (target == b)
        busy[here] = np.rint(size[here] * float(link.per_byte / tick)).astype(np.int64)
        latency[here] = int(link.latency / tick)
    return Wires((source * count + target).astype(np.int32), busy, latency)


def transfer_bytes(schedule: Schedule) -> NDArray[np.float64]:
    """Bytes of each transfer: the boundary of its stage x share of its slice."""
    shape, moves, table = schedule.shape, moves_of(schedule), schedule.table
    bytes_of = np.zeros(shape.stages + 1)
    bytes_of[1 : shape.stages] = shape.boundary_bytes or [0] * (shape.stages - 1)
    # An input belongs to the boundary in front of its reader, a gradient to the one behind it.
    forward = np.array([name in ("x", "skip") for name in BUFFERS])[moves.buffer]
    boundary = np.where(forward, table.stage[moves.reader], table.stage[moves.writer])
    shares = shares_of(shape)
    share = shares.unit[schedule.unit[moves.reader]] / shares.unit_scale
    size: NDArray[np.float64] = bytes_of[boundary] * share
    return size
