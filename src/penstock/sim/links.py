"""What transfers cost: latency on an edge of the graph, occupancy on a link between devices.

A collective starts when its last part is written. It takes as long as the slowest of the transfers
that it replaces would take on a free link; it does not occupy links for others.
"""

from fractions import Fraction
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import BUFFERS
from penstock.core.graph import AFTER, graph_of
from penstock.core.homes import stage_column
from penstock.core.rules import NAMES
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Wires
from penstock.core.table import Ints, Ticks
from penstock.core.transfers import joined_edges, moves_of
from penstock.cost.model import Cost, Link
from penstock.cost.shares import Scaled, refuse_overflow, unit_shares


class Links(NamedTuple):
    """The links between devices; most are the same one, and fractions are slow."""

    different: tuple[Link, ...]
    """The first costs nothing."""
    number: NDArray[np.int64]
    """Which of them leads from one device to another: source x devices + target."""

    @property
    def free(self) -> bool:
        """Whether no transfer costs anything."""
        return len(self.different) == 1

    def joined(self) -> "Links":
        """The same for what a collective brings together."""
        wide = (link._replace(per_byte=link.per_byte * link.joined) for link in self.different)
        return self._replace(different=tuple(wide))

    def latencies(self, tick: Fraction) -> Ticks:
        """Of every pair of devices, in ticks of which each is a whole number."""
        each = [_over(link.latency, tick) for link in self.different]
        whole = [times // parts for times, parts in each]
        return np.asarray(np.array(whole, np.int64)[self.number])


def _over(value: Fraction, tick: Fraction, scale: int = 1) -> tuple[int, int]:
    """A value in parts of a tick, as two numbers to be divided: fractions of them are slow."""
    return value.numerator * tick.denominator, value.denominator * tick.numerator * scale


Columns = tuple[Ints, Ints, Ints]
"""Writing row, reading row and buffer of some reads."""


def links_of(schedule: Schedule, cost: Cost) -> Links:
    """The links that some read crosses; the others cost nothing."""
    count = schedule.shape.devices
    number = np.zeros(count * count, np.int64)
    different = [Link()]
    known: dict[int, tuple[int, Link]] = {}  # each link stays at its place in memory
    for source, target in schedule.derive("crossed links", _crossed):
        link = cost.link(source, target)
        if id(link) not in known:
            known[id(link)] = (0 if link.free else len(different), link)
            different += [] if link.free else [link]
        number[source * count + target] = known[id(link)][0]
    return Links(tuple(different), number)


def _crossed(schedule: Schedule) -> list[tuple[int, int]]:
    """Source and target of the links that some read crosses."""
    count = schedule.shape.devices
    used = np.zeros(count * count, np.bool_)
    used[schedule.derive("crossings", _crossings)] = True
    pairs = (divmod(int(pair), count) for pair in np.flatnonzero(used))
    return [(source, target) for source, target in pairs if source != target]


def _crossings(schedule: Schedule) -> NDArray[np.int32]:
    """Source and target device of every edge of the graph, as one number."""
    graph, device = graph_of(schedule), schedule.table.device
    return device[graph.writer] * np.int32(schedule.shape.devices) + device[graph.reader]


def delays(schedule: Schedule, links: Links, tick: Fraction) -> NDArray[Any]:
    """Latency of every edge of the graph, in ticks; empty where there is none."""
    if links.free:
        return np.zeros(0, np.int64)
    latency: NDArray[Any] = links.latencies(tick)
    if latency.max() < 2**31:
        latency = latency.astype(np.int32)
    found = latency[schedule.derive("crossings", _crossings)]
    if schedule.after:
        found[schedule.derive("edges without data", _order_alone)] = 0
    joined = schedule.derive("joined edges", joined_edges)
    if joined.size:
        found = found.astype(np.int64)
        found[joined] = _collective_times(schedule, joined, found[joined], links, tick)
    return found


def _order_alone(schedule: Schedule) -> NDArray[np.int64]:
    """Edges of the graph that are order alone."""
    return np.flatnonzero(graph_of(schedule).buffer == AFTER)


def _collective_times(
    schedule: Schedule, edges: NDArray[np.int64], latency: Ticks, links: Links, tick: Fraction
) -> Ticks:
    """For each part of a collective, how long after its writer a reader has all of them."""
    pair = schedule.derive("crossings", _crossings)[edges]
    parts = _joined_parts(schedule)
    slowest = latency + _occupied(schedule, pair, parts, links.joined(), tick)
    order, start, of_edge = schedule.derive("collectives of edges", _collective_of_edges)
    return np.asarray(np.maximum.reduceat(slowest[order], start)[of_edge])


def _collective_of_edges(schedule: Schedule) -> tuple[NDArray[np.int64], ...]:
    """Edges of collectives one after the other, where each begins, and the number of that of each
    edge: edges of one have reader and buffer in common."""
    graph, edges = graph_of(schedule), schedule.derive("joined edges", joined_edges)
    keys = graph.reader[edges].astype(np.int64) * len(NAMES) + graph.buffer[edges]
    order = np.argsort(keys, kind="stable")
    begins = np.diff(keys[order], prepend=-1) != 0
    of_edge = np.empty(len(keys), np.int64)
    of_edge[order] = np.cumsum(begins) - 1
    return order, np.flatnonzero(begins), of_edge


class Traffic(NamedTuple):
    """What transfers take over some links, in ticks."""

    delay: NDArray[Any]
    """Of every edge of the graph, as `delays` says."""
    wires: Wires | None


KEPT_TRAFFIC = 4
"""Links for which a schedule keeps what its transfers take: plans that have it in common often have
links in common too."""


def traffic_of(schedule: Schedule, links: Links, tick: Fraction) -> Traffic:
    """What the transfers of a schedule take, kept for the links that were asked for last."""
    known = schedule.derive("traffic", _no_traffic)
    key = (links.different, links.number.tobytes(), tick)
    if key not in known:
        if len(known) == KEPT_TRAFFIC:
            del known[next(iter(known))]
        known[key] = Traffic(delays(schedule, links, tick), wires(schedule, links, tick))
    return known[key]


def _no_traffic(schedule: Schedule) -> dict[tuple[tuple[Link, ...], bytes, Fraction], Traffic]:
    return {}


def wires(schedule: Schedule, links: Links, tick: Fraction) -> Wires | None:
    """Links that transfers occupy, or none where bytes cost nothing."""
    if not any(link.per_byte for link in links.different):
        return None
    pair = transfer_links(schedule)
    busy = _occupied(schedule, pair, transfer_parts(schedule), links, tick)
    return Wires(pair, busy, links.latencies(tick)[pair])


def transfer_links(schedule: Schedule) -> Ints:
    """Source and target device of each transfer, as one number."""
    return schedule.derive("transfer links", _transfer_links)


def _transfer_links(schedule: Schedule) -> Ints:
    moves, device = moves_of(schedule), schedule.table.device
    pair = device[moves.writer] * schedule.shape.devices + device[moves.reader]
    return np.asarray(pair, np.int32)


def _occupied(
    schedule: Schedule, pair: Ints, moved: tuple[Ticks, int], links: Links, tick: Fraction
) -> Ticks:
    """Ticks for which each of some transfers, between a pair of devices, occupies its link."""
    parts, scale = moved
    most = int(parts.max(initial=0))
    factors = [_over(link.per_byte, tick, scale) for link in links.different]
    if all(most * times < _EXACT * over for times, over in factors):
        each = np.array([times / over for times, over in factors])
        return np.asarray(np.rint(parts * each[links.number[pair]]), np.int64)
    if all(times % over == 0 for times, over in factors):
        whole = [times // over for times, over in factors]
        refuse_overflow(most * max(whole) * len(parts))
        return np.asarray(parts * np.array(whole, np.int64)[links.number[pair]])
    busy = np.zeros(len(parts), np.int64)
    for number, (times, over) in enumerate(factors):
        here = links.number[pair] == number
        busy[here] = _times(parts[here], Fraction(times, over))
    return busy


def _times(parts: Ticks, factor: Fraction) -> Ticks:
    """Parts times a factor: exact where it is whole, else to the nearest tick."""
    refuse_overflow(int(int(parts.max(initial=0)) * factor * len(parts)))
    exact = factor.denominator == 1
    scaled = parts * factor.numerator if exact else np.rint(parts * float(factor))
    return np.asarray(scaled, np.int64)


def finest(schedule: Schedule, links: Links, scaled: Scaled) -> int:
    """Ticks per unit of time in which latencies are whole, and occupancies where that fits.

    `scaled` are the op times. Bandwidths of real links have large denominators; where a common
    unit of those would overflow, occupancies are rounded to a tick that is as fine as fits.
    """
    ticks = scaled.tick.denominator
    fine = lcm(ticks, *(link.latency.denominator for link in links.different))
    speeds = [link.per_byte for link in links.different if link.per_byte]
    if not speeds:
        return fine
    bytes_moved, scale = schedule.derive("bytes moved", _bytes_moved)
    exact = lcm(fine, *(speed.denominator * scale for speed in speeds))
    slowest = max(link.per_byte * link.joined for link in links.different)
    total = int(scaled.ticks.sum()) * scaled.tick + bytes_moved * slowest
    room = _ROOM * total.denominator
    if total.numerator * exact < room:
        return exact
    while total.numerator * fine * 2 < room:
        fine *= 2
    return fine


_EXACT = 2**53
"""Whole numbers below this are exact as floats, and so are their products."""
_ROOM = 2**56
"""Ticks that a step may have when its tick is made finer for the sake of its links."""


def _bytes_moved(schedule: Schedule) -> tuple[Fraction, int]:
    """Bytes of all transfers and of what collectives bring, and a scale at which each is whole."""
    own, scale = transfer_parts(schedule)
    parts = np.concatenate([own, _joined_parts(schedule)[0]])
    scale //= gcd(scale, int(np.gcd.reduce(parts, initial=0)))
    return Fraction(int(parts.sum()), scale), scale


def _joined_parts(schedule: Schedule) -> tuple[Ticks, int]:
    """Bytes of what collectives bring, times a scale."""

    def found(schedule: Schedule) -> tuple[Ticks, int]:
        graph, joined = graph_of(schedule), joined_edges(schedule)
        columns = (graph.writer[joined], graph.reader[joined], graph.buffer[joined])
        return bytes_of(schedule, columns)

    return schedule.derive("joined parts", found)


def transfer_parts(schedule: Schedule) -> tuple[Ticks, int]:
    """Bytes of each transfer, times a scale."""

    def found(schedule: Schedule) -> tuple[Ticks, int]:
        moves = moves_of(schedule)
        return bytes_of(schedule, (moves.writer, moves.reader, moves.buffer))

    return schedule.derive("transfer parts", found)


def bytes_of(schedule: Schedule, columns: Columns) -> tuple[Ticks, int]:
    """Bytes that some reads move, times a scale: the boundary they cross x the share of their
    slice."""
    writer, reader, moved = columns
    shape = schedule.shape
    bytes_at = np.zeros(shape.stages + 1, np.int64)
    bytes_at[1 : shape.stages] = shape.boundary_bytes or [0] * (shape.stages - 1)
    boundary = np.zeros(len(writer), np.int64)
    ends = {"first": min(1, shape.stages - 1), "last": shape.stages - 1}
    for crosses, of_buffer in _CROSSING.items():
        here = np.flatnonzero(of_buffer[moved])
        if len(here) and crosses in ends:
            boundary[here] = ends[crosses]
        elif len(here):
            rows = reader if crosses == "reader" else writer
            boundary[here] = stage_column(schedule)[rows[here]]
    shares, scale = schedule.derive("shares of slices", lambda each: unit_shares(each.shape))
    return bytes_at[boundary] * shares[schedule.unit[reader]], scale


_CROSSING = {
    crosses: np.array([buffer.crosses == crosses for buffer in BUFFERS.values()])
    for crosses in ("reader", "writer", "first", "last")
}
"""Which buffers cross a boundary with bytes; loans are timed with the ops that run in lock-step."""
