"""Everything a search has to respect, read once from a schedule: what waits, lasts and holds.

A search tries many orders of the same ops. What an op waits for, how long it takes and what it
holds does not depend on the order, so it is derived once, from the meaning table and the cost
model, for all ops that an order may have: those of a schedule, and the copies to the host and back
that may be added to it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from graphlib import TopologicalSorter
from math import lcm
from typing import NamedTuple

from penstock.core.graph import reads_of
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.table import PlainLane
from penstock.cost.model import Cost
from penstock.errors import ShapeError
from penstock.sim.memory import changes_of

Offloads = Mapping[Op, Fraction]
"""Forwards whose activation may go to the host, and the share of it that goes."""
COPIES = ("O", "L")


class Wait(NamedTuple):
    """Row `later` starts no earlier than `delay` ticks after row `earlier` has ended."""

    earlier: int
    later: int
    delay: int


@dataclass(frozen=True, eq=False)
class Net:
    """Ops by row, as in the table of `schedule`, whose lanes hold every copy that may be made."""

    schedule: Schedule
    tick: Fraction
    length: list[int]
    waits: list[Wait]
    """What every order must respect; those of a copy hold only where the copy is made."""
    takes: list[int]
    """What a row adds to its device's memory at its start, in grains."""
    frees: list[int]
    """What it changes at its end: negative where memory is given back."""
    grain: Fraction

    @classmethod
    def of(cls, start: Schedule, cost: Cost, offloads: Offloads) -> "Net":
        """The net of a schedule's ops, and of copies of the chosen forwards' activations."""
        _refuse_groups(start)
        full = _with_copies(start, offloads)
        bare = _with_copies(_without_copies(start), {})
        scaled = cost.durations(full)
        edges = list(dict.fromkeys([*_edges(full, full), *_edges(bare, full)]))
        device = full.table.device
        hops = [cost.link(int(device[a]), int(device[b])).latency for a, b in edges]
        tick = Fraction(1, lcm(scaled.tick.denominator, *(hop.denominator for hop in hops)))
        factor = int(scaled.tick / tick)
        waits = [
            Wait(a, b, int(hop / tick) if device[a] != device[b] else 0)
            for (a, b), hop in zip(edges, hops)
        ]
        at_start, at_end, grain = changes_of(full, cost)
        return cls(
            full,
            tick,
            [int(ticks) * factor for ticks in scaled.ticks],
            waits,
            at_start.tolist(),
            at_end.tolist(),
            grain,
        )

    @cached_property
    def device(self) -> list[int]:
        found: list[int] = self.schedule.table.device.tolist()
        return found

    @cached_property
    def copies(self) -> dict[tuple[int, int, int], tuple[int, int]]:
        """By stage, microbatch and slice: rows of the offload and the load that may be made."""
        rows = self.schedule.table.rows_by_op
        moved = [op for op in rows if op.kind == "O"]
        return {op[1:]: (rows[op][0], rows[op._replace(kind="L")][0]) for op in moved}

    @cached_property
    def compute(self) -> list[range]:
        """Rows of each device's compute lane."""
        table = self.schedule.table
        lanes: list[range] = [range(0)] * self.schedule.shape.devices
        for number, (device, stream) in enumerate(zip(table.lane_device, table.lane_stream)):
            if stream == "compute":
                lanes[int(device)] = range(*table.lane_start[number : number + 2].tolist())
        return lanes

    @cached_property
    def heads(self) -> list[int]:
        """Earliest start of each row if every device did one thing at a time for it alone."""
        return self._longest(((a, b, self.length[a] + delay) for a, b, delay in self.waits))

    @cached_property
    def tails(self) -> list[int]:
        """Least time from the end of each row to the end of the step."""
        return self._longest(((b, a, self.length[b] + delay) for a, b, delay in self.waits))

    def _longest(self, arcs: Iterable[tuple[int, int, int]]) -> list[int]:
        """Longest path to each row without copies, which need not be made."""
        skipped = {row for pair in self.copies.values() for row in pair}
        into: dict[int, dict[int, int]] = {row: {} for row in range(len(self.length))}
        for source, target, weight in arcs:
            if source not in skipped and target not in skipped:
                into[target][source] = weight
        found = [0] * len(into)
        for row in TopologicalSorter(into).static_order():
            found[row] = max((found[a] + weight for a, weight in into[row].items()), default=0)
        return found

    @property
    def alike(self) -> bool:
        """Whether microbatches differ in nothing but their number."""
        shape = self.schedule.shape
        return len(set(shape.slices)) == 1 and len(set(shape.slice_share)) <= 1

    def chains(self) -> list[list[int]]:
        """Rows that differ in nothing but their microbatch, each list in ascending order.

        It loses nothing to run the ops of one kind, stage and slice in the order of microbatches:
        the k-th to run may as well be the k-th.
        """
        chains: dict[tuple[str, int, int], list[int]] = {}
        table = self.schedule.table
        rows = [row for lane in self.compute for row in lane] if self.alike else []
        for row in sorted(rows, key=lambda row: int(table.mb[row])):
            op = table.op(row)
            chains.setdefault((op.kind, op.stage, op.slice), []).append(row)
        return list(chains.values())


def _refuse_groups(schedule: Schedule) -> None:
    if schedule.pairs or schedule.loans or schedule.gangs:
        raise ShapeError(
            f"{schedule.name} has ops that run together, which the search would take apart",
            hint="search from a schedule without pairs, loans and gangs",
        )


def _with_copies(schedule: Schedule, offloads: Offloads) -> Schedule:
    """The schedule with an offload and a load for each chosen forward, and for those it has."""
    table = schedule.table
    made = dict(schedule.shares)
    present = [op for op in table.ops() if op.kind == "O"]
    moved = {op: made.get(op, Fraction(1)) for op in present}
    moved |= {op._replace(kind="O"): share for op, share in offloads.items() if share}
    lanes: list[PlainLane] = [lane for lane in table.lanes() if lane[1] != "copy"]
    copies: dict[int, list[Op]] = {}
    for op in moved:
        row = table.row_of(op._replace(kind="F"))
        copies.setdefault(int(table.device[row]), []).append(op)
    for device, ops in copies.items():
        lanes.append((device, "copy", [op._replace(kind=kind) for kind in COPIES for op in ops]))
    partial = [(op, share) for op, share in moved.items() if share < 1]
    shares = tuple((op._replace(kind=kind), share) for op, share in partial for kind in COPIES)
    return Schedule.from_lanes(schedule.name, schedule.shape, lanes, shares=shares)


def _without_copies(schedule: Schedule) -> Schedule:
    """The compute lanes alone."""
    lanes = [lane for lane in schedule.table.lanes() if lane[1] != "copy"]
    return Schedule.from_lanes(schedule.name, schedule.shape, lanes)


def _edges(schedule: Schedule, full: Schedule) -> list[tuple[int, int]]:
    """Who writes and who reads it, as rows of the full schedule."""
    graph, rows = reads_of(schedule), full.table.rows_by_op
    same = [rows[op][0] for op in schedule.table.ops()]
    pairs = zip(graph.writer.tolist(), graph.reader.tolist())
    return [(same[a], same[b]) for a, b in pairs if a >= 0]
