"""A real step as a timeline of the same type as a simulated one.

Every device sends its marks to the first one, which lays them beside each other. Processes of one
machine read one clock; the clocks of different machines are compared by messages to and fro.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
import torch
from torch import distributed
from torch.distributed import ProcessGroup

from penstock.core.rules import NAMES
from penstock.core.schedule import Schedule
from penstock.core.table import Ticks
from penstock.core.transfers import moves_of
from penstock.cost.profile import NANOSECOND
from penstock.plan.memory_by_class import ClassBytes
from penstock.run.execute.executor import Executor
from penstock.run.observe.memory_meter import Sample
from penstock.sim.timeline import Curve, Timeline, Transfers

CLOCK_ROUNDS = 8
"""Messages to and fro; the fastest one says most about the clock."""


class DevicePart(NamedTuple):
    """What one rank knows of a step, by row of the schedule's table."""

    rows: list[int]
    start: list[int]
    end: list[int]
    cpu: list[int]
    """Nanoseconds of CPU of each row, where they were counted."""
    memory: dict[int, Sample]
    boot: str
    """Of the machine: processes with the same one read the same clock."""
    host: int = 0
    """The most bytes that waited on the host at once."""
    kept: int = 0
    """Bytes of optimizer state on the host."""
    classes: ClassBytes | None = None
    """What its memory is for, when it holds most."""


class MeasuredStep(NamedTuple):
    """Starts, transfers and memory of a step that was run."""

    start: Ticks
    memory: Mapping[int, Sample]

    def starts(self, timeline: Timeline) -> Ticks:
        return self.start

    def transfers(self, timeline: Timeline) -> Transfers:
        """From the end of the op that writes to the start of the op that reads: what is seen of a
        transfer without asking the network."""
        moves = moves_of(timeline.schedule)
        payload = tuple(np.array(NAMES, object)[moves.buffer].tolist())
        leave, arrive = timeline.end[moves.writer], timeline.start[moves.reader]
        return Transfers(moves.writer, moves.reader, payload, leave, np.maximum(leave, arrive))

    def curves(self, timeline: Timeline) -> tuple[Curve, ...]:
        """While an op runs, its highest level; after it, what is left."""
        table = timeline.schedule.table
        found = []
        for device in range(timeline.schedule.shape.devices):
            own = np.flatnonzero(table.device == device).tolist()
            rows = [row for row in own if row in self.memory]
            times = [t for row in rows for t in (timeline.start[row], timeline.end[row])]
            levels = [v for row in rows for v in (self.memory[row].peak, self.memory[row].after)]
            found.append(Curve(np.array(times, np.int64), np.array(levels, np.int64)))
        return tuple(found)


def part_of(executor: Executor, schedule: Schedule) -> DevicePart:
    """The last step of this device over a schedule, without CPU times and memory."""
    start, end = executor.spans.nanoseconds()
    table, calls = schedule.table, executor.spans.calls
    here = np.flatnonzero(table.device == executor.lane.device).tolist()
    row_of = dict(zip(table.ops_at(here), here))  # an op of a gang stands in other lanes too
    on_batch = [at for at, call in enumerate(calls) if call.op in row_of]
    rows = [row_of[calls[at].op] for at in on_batch]
    starts, ends = ([marks[at] for at in on_batch] for marks in (start, end))
    return DevicePart(rows, starts, ends, [], {}, _boot())


def gather(part: DevicePart, group: ProcessGroup | None) -> list[DevicePart]:
    """The parts of all ranks, on one clock, at the first of them; empty at the others."""
    if group is None:
        return [part]
    parts: list[DevicePart | None] = [None] * group.size()
    distributed.all_gather_object(parts, part, group=group)
    offsets = [0] * group.size()
    if len({each.boot for each in parts if each}) > 1:
        offsets = _offsets(group)
    if group.rank() > 0:
        return []
    return [_moved(each, offset) for each, offset in zip(parts, offsets) if each]


def of_cells(parts: Sequence[DevicePart]) -> list[DevicePart]:
    """One part for each device: its ranks do the same ops, each on its share. An op has started
    when all of them have, so that it starts after the op before it and after what it reads; it has
    ended when all of them have, and takes and holds what it does where it takes or holds most."""
    cells: dict[tuple[int, ...], list[DevicePart]] = {}
    for part in parts:
        cells.setdefault(tuple(part.rows), []).append(part)
    return [_of_cell(ranks) for ranks in cells.values()]


def _of_cell(ranks: Sequence[DevicePart]) -> DevicePart:
    fullest = {
        row: max((rank.memory[row] for rank in ranks), key=lambda sample: sample.peak)
        for row in ranks[0].memory
    }
    return ranks[0]._replace(
        start=[max(marks) for marks in zip(*(rank.start for rank in ranks))],
        end=[max(marks) for marks in zip(*(rank.end for rank in ranks))],
        cpu=[max(times) for times in zip(*(rank.cpu for rank in ranks))],
        memory=fullest,
        host=max(rank.host for rank in ranks),
        kept=max(rank.kept for rank in ranks),
        classes=max((each for rank in ranks if (each := rank.classes)), key=sum, default=None),
    )


def timeline_of(schedule: Schedule, parts: Sequence[DevicePart]) -> Timeline:
    """The timeline of the parts; it begins at 0."""
    start, end = np.zeros((2, len(schedule.table)), np.int64)
    memory: dict[int, Sample] = {}
    for part in parts:
        start[part.rows], end[part.rows] = part.start, part.end
        memory |= part.memory
    first = start.min()
    peaks = np.zeros(schedule.shape.devices, np.int64)
    for row, sample in memory.items():
        device = schedule.table.device[row]
        peaks[device] = max(peaks[device], sample.peak)
    details = MeasuredStep(start - first, memory)
    return Timeline(schedule, end - first, NANOSECOND, peaks, Fraction(1), details)


def _moved(part: DevicePart, offset: int) -> DevicePart:
    start, end = ([mark - offset for mark in marks] for marks in (part.start, part.end))
    return part._replace(start=start, end=end)


def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _offsets(group: ProcessGroup) -> list[int]:
    """How far each member's clock is ahead of the first one's, in nanoseconds."""
    found = torch.zeros(group.size(), dtype=torch.int64)
    for member in range(1, group.size()):
        if group.rank() == 0:
            found[member] = _ask(group, member)
        elif group.rank() == member:
            _answer(group)
    distributed.all_reduce(found, group=group)
    return [int(value) for value in found]


def _ask(group: ProcessGroup, member: int) -> int:
    """Half of the fastest way to and fro lies before the other's answer."""
    trips: list[tuple[int, int]] = []
    for _ in range(CLOCK_ROUNDS):
        theirs = torch.zeros(1, dtype=torch.int64)
        began = perf_counter_ns()
        distributed.send(theirs, group=group, group_dst=member)
        distributed.recv(theirs, group=group, group_src=member)
        ended = perf_counter_ns()
        trips.append((ended - began, int(theirs) - (began + ended) // 2))
    return min(trips)[1]


def _answer(group: ProcessGroup) -> None:
    for _ in range(CLOCK_ROUNDS):
        asked = torch.zeros(1, dtype=torch.int64)
        distributed.recv(asked, group=group, group_src=0)
        now = torch.tensor([perf_counter_ns()], dtype=torch.int64)
        distributed.send(now, group=group, group_dst=0)
