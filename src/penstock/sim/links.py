"""What transfers cost: latency on an edge of the graph, occupancy on a link between devices."""

from fractions import Fraction
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.graph import AFTER, graph_of
from penstock.core.meaning import BUFFERS
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Wires
from penstock.core.transfers import moves_of
from penstock.cost.model import Cost, Link
from penstock.cost.shares import Scaled, refuse_overflow, shares_of


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
    parts, scale = transfer_parts(schedule)
    for (a, b), link in links.items():
        here = (source == a) & (target == b)
        busy[here] = _times(parts[here], link.per_byte / (scale * tick))
        latency[here] = int(link.latency / tick)
    return Wires((source * count + target).astype(np.int32), busy, latency)


def _times(parts: NDArray[np.int64], factor: Fraction) -> NDArray[np.int64]:
    """Parts times a factor: exact where it is whole, else to the nearest tick."""
    refuse_overflow(int(int(parts.max(initial=0)) * factor * len(parts)))
    exact = factor.denominator == 1
    scaled = parts * factor.numerator if exact else np.rint(parts * float(factor))
    return np.asarray(scaled, np.int64)


def finest(schedule: Schedule, links: dict[tuple[int, int], Link], scaled: Scaled) -> int:
    """Ticks per unit of time in which latencies are whole, and occupancies where that fits.

    `scaled` are the op times. Bandwidths of real links have large denominators; where a common
    unit of those would overflow, occupancies are rounded to a tick that is as fine as fits.
    """
    ticks = scaled.tick.denominator
    fine = lcm(ticks, *(link.latency.denominator for link in links.values()))
    speeds = [link.per_byte for link in links.values() if link.per_byte]
    if not speeds:
        return fine
    parts, scale = transfer_parts(schedule)
    scale //= gcd(scale, int(np.gcd.reduce(parts, initial=0)))
    exact = lcm(fine, *(speed.denominator * scale for speed in speeds))
    bytes_moved = Fraction(int(parts.sum()), scale)
    total = int(scaled.ticks.sum()) * scaled.tick + bytes_moved * max(speeds)
    if total * exact < _ROOM:
        return exact
    while total * fine * 2 < _ROOM:
        fine *= 2
    return fine


_ROOM = 2**56
"""Ticks that a step may have when its tick is made finer for the sake of its links."""


def transfer_parts(schedule: Schedule) -> tuple[NDArray[np.int64], int]:
    """Bytes of each transfer, times a scale: the boundary it crosses x the share of its slice."""
    shape, moves, table = schedule.shape, moves_of(schedule), schedule.table
    bytes_at = np.zeros(shape.stages + 1, np.int64)
    bytes_at[1 : shape.stages] = shape.boundary_bytes or [0] * (shape.stages - 1)
    ends = np.full((2, len(moves.writer)), [[min(1, shape.stages - 1)], [shape.stages - 1]])
    stage_of = {
        "reader": table.stage[moves.reader],
        "writer": table.stage[moves.writer],
        "first": ends[0],
        "last": ends[1],
        "none": np.zeros_like(ends[0]),
    }
    boundary = np.zeros(len(moves.writer), np.int64)
    for number, buffer in enumerate(BUFFERS.values()):
        here = moves.buffer == number
        if buffer.crosses in stage_of:  # what is summed is no transfer
            boundary[here] = stage_of[buffer.crosses][here]
    shares = shares_of(shape)
    return bytes_at[boundary] * shares.unit[schedule.unit[moves.reader]], shares.unit_scale
