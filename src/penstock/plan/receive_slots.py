"""Memory that waits for what other devices send, on top of what the ops of a step hold.

A receive is posted into memory of its own as soon as its slot is free, and that is taken until the
op that reads it has ended. Where all that travels has one size, slots count from the beginning of a
step to its end. Where boundaries differ, as around attention that is a stage, each transfer counts
as long as it is there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.core.buffers import BUFFERS
from penstock.core.program import Channel, Program
from penstock.core.rules import NUMBER_OF
from penstock.core.schedule import Schedule
from penstock.core.table import Ticks
from penstock.core.transfers import Moves
from penstock.cost.cut_workload import CutWorkload
from penstock.cost.workload import Workload
from penstock.lower import lower_for_running
from penstock.sim.timeline import Curve, Timeline, Transfers


@dataclass(frozen=True, eq=False)
class WithSlots:
    """The details of a simulated step, with the memory of its receives."""

    alive: Timeline
    slots: Sequence[Curve]
    """Of each device, in the units of its curve."""
    rows: int

    def starts(self, timeline: Timeline) -> Ticks:
        return self.alive.start

    def transfers(self, timeline: Timeline) -> Transfers:
        return self.alive.transfers

    def curves(self, timeline: Timeline) -> tuple[Curve, ...]:
        return tuple(
            Curve(curve.time, self.rows * (curve.level + _at(more, curve.time)))
            for curve, more in zip(self.alive.curves, self.slots)
        )


def _at(curve: Curve, times: Ticks) -> Ticks:
    """The level of a curve at some times; before its first one it is what it begins with."""
    return curve.level[np.maximum(np.searchsorted(curve.time, times, side="right") - 1, 0)]


def with_slots(timeline: Timeline, workload: Workload, rows: int = 1) -> Timeline:
    """A step that was simulated with the bytes of one sequence, as `rows` of them and the receive
    slots make it. What is predicted of a step's memory is predicted by this."""
    if isinstance(workload, CutWorkload):
        return _with_received(timeline, workload, rows)
    slots = [int(count / timeline.grain) for count in slot_bytes(timeline.schedule, workload)]
    levels = rows * (timeline.peak_levels + np.array(slots, np.int64))
    each = [Curve(np.zeros(1, np.int64), np.array([count], np.int64)) for count in slots]
    return replace(timeline, peak_levels=levels, details=WithSlots(timeline, each, rows))


def _with_received(timeline: Timeline, workload: CutWorkload, rows: int) -> Timeline:
    """The same where each transfer counts as long as it is there."""
    table, start = timeline.schedule.table, timeline.start
    level = (received_bytes(timeline.schedule, workload) / float(timeline.grain)).astype(np.int64)
    computing = np.array([stream == "compute" for stream in table.lane_stream])[table.lane]
    devices = range(timeline.schedule.shape.devices)
    lanes = [np.flatnonzero(computing & (table.device == device)) for device in devices]
    details = WithSlots(timeline, [Curve(start[own], level[own]) for own in lanes], rows)
    peaks = [curve.level.max(initial=0) for curve in details.curves(timeline)]
    # Where copies run beside the lane, the peak may be proven higher than the curve is.
    simulated = [curve.level.max(initial=0) for curve in timeline.curves]
    beside = rows * (timeline.peak_levels - np.array(simulated, np.int64))
    levels = np.array(peaks, np.int64) + beside
    return replace(timeline, peak_levels=levels, details=details)


def slot_bytes(schedule: Schedule, workload: Workload) -> list[int]:
    """Bytes of each device's receive slots, each as large as the longest slice. What loans move has
    room only while their ops run, and is counted with these."""
    longest = max(max(lengths) for lengths in workload.lengths)
    boundary = workload.boundary_bytes(longest)
    return [slots * boundary for slots in slot_counts(lower_for_running(schedule))]


def slot_counts(program: Program) -> list[int]:
    """How many receive slots each device has."""
    return received_slots(
        dict(zip(program.channels, program.slots)), program.schedule.shape.devices
    )


def received_slots(slots_of: Mapping[Channel, int], devices: int) -> list[int]:
    """The same of so many devices, from the slots of each channel."""
    found = [0] * devices
    for channel, slots in slots_of.items():
        if BUFFERS[channel.payload].per != "loan":
            found[channel.target] += slots
    return found


def received_bytes(schedule: Schedule, workload: CutWorkload) -> Ticks:
    """Bytes that wait for messages, or came with them, while each row runs. The input that an op
    keeps is its own from its start on."""
    program, table = lower_for_running(schedule), schedule.table
    moves, rows = program.moves, len(table)
    posted = np.zeros(len(moves.writer), np.int64)
    posted[program.posts.items] = np.repeat(np.arange(rows + 1), np.diff(program.posts.start))
    reader = moves.last_reader
    first = np.array(table.lane_start)[table.lane[reader]]
    begin = np.where(posted == rows, first, posted + 1)
    end = reader + 1 - workload.keeps_input(schedule)[reader]
    size = _sizes(schedule, workload, moves)
    size[begin >= end] = 0
    change = np.zeros(rows + 1, np.int64)
    np.add.at(change, begin, size)
    np.subtract.at(change, end, size)
    return np.cumsum(change[:-1])


def _sizes(schedule: Schedule, workload: CutWorkload, moves: Moves) -> Ticks:
    """Bytes of each transfer: an input crosses the boundary before its reader's stage, a gradient
    the one behind it."""
    table, lengths = schedule.table, [n for each in workload.lengths for n in each]
    crossed = np.array([workload.boundaries(count) for count in lengths], np.int64)
    behind = moves.buffer == NUMBER_OF["g"]
    stage, unit = table.stage[moves.reader], schedule.unit[moves.reader]
    return np.asarray(crossed[unit, stage - 1 + behind], np.int64)
