"""When everything happened: spans in time, transfers, and memory over time.

A simulation and a real run produce the same type, so that the predicted and the measured picture
can be laid over each other. Times are whole ticks; `tick` is what one of them is worth.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.table import Ints, Ticks
from penstock.display import Displayed


class Transfers(NamedTuple):
    """Columns of what moved between devices: who wrote it, who read it, when it was under way."""

    writer: Ints
    """Row of the op that wrote it."""
    reader: Ints
    """Row of the first op that reads it on the receiving device."""
    payload: tuple[str, ...]
    """Name of the buffer of each transfer."""
    start: Ticks
    end: Ticks


class Curve(NamedTuple):
    """Memory of one device: from `time[i]` on it holds `level[i]`."""

    time: Ticks
    level: Ticks


class Span(NamedTuple):
    """One op in time, for readers; the columns are what the machinery works on."""

    op: Op
    device: int
    stream: str
    start: Fraction
    end: Fraction


class Details(Protocol):
    """The costly parts of a timeline, worked out only for pictures and reports."""

    def starts(self, timeline: "Timeline") -> Ticks: ...

    def transfers(self, timeline: "Timeline") -> Transfers: ...

    def curves(self, timeline: "Timeline") -> tuple[Curve, ...]: ...


@dataclass(frozen=True, eq=False)
class Timeline(Displayed):
    """Row i of the schedule's table ran from `start[i]` to `end[i]`."""

    schedule: Schedule
    end: Ticks
    tick: Fraction
    peak_levels: Ticks
    """Largest memory level of each device."""
    grain: Fraction
    """What one step of a memory level is worth."""
    details: Details
    """Where starts, transfers and curves come from when somebody looks at them."""

    def __repr__(self) -> str:
        return (
            f"<Timeline {self.schedule.summary}, makespan {float(self.makespan):g}, "
            f"bubble {float(self.bubble_makespan):.1%}, peak {float(max(self.peak)):g}>"
        )

    @property
    def name(self) -> str:
        return self.schedule.name

    @cached_property
    def start(self) -> Ticks:
        """When each row started."""
        return self.details.starts(self)

    @cached_property
    def makespan(self) -> Fraction:
        """From the first start to the last end, over all devices and streams."""
        return int(self.end.max() - self.start.min()) * self.tick

    @cached_property
    def _compute(self) -> list[tuple[int, int, int]]:
        """Device and row range of every compute lane."""
        table = self.schedule.table
        return [
            (int(device), int(table.lane_start[lane]), int(table.lane_start[lane + 1]))
            for lane, device in enumerate(table.lane_device)
            if table.lane_stream[lane] == "compute"
        ]

    @cached_property
    def span(self) -> Fraction:
        """The longest single device, from its first compute op to its last."""
        lengths = [self.end[end - 1] - self.start[start] for _, start, end in self._compute]
        return int(max(lengths)) * self.tick

    @cached_property
    def work(self) -> tuple[Fraction, ...]:
        """Busy compute time of each device."""
        busy = [Fraction(0)] * self.schedule.shape.devices
        for device, start, end in self._compute:
            busy[device] = int(busy_ticks(self.start[start:end], self.end[start:end])) * self.tick
        return tuple(busy)

    @property
    def bubble_makespan(self) -> Fraction:
        """Idle share of the devices over the whole step."""
        return 1 - self._mean_work / self.makespan if self.makespan else Fraction(0)

    @property
    def bubble_span(self) -> Fraction:
        """Idle share when each device may start its next step on its own."""
        return 1 - self._mean_work / self.span if self.span else Fraction(0)

    @property
    def _mean_work(self) -> Fraction:
        return sum(self.work, Fraction(0)) / len(self.work)

    @cached_property
    def peak(self) -> tuple[Fraction, ...]:
        """Largest memory of each device."""
        return tuple(int(level) * self.grain for level in self.peak_levels)

    @cached_property
    def transfers(self) -> Transfers:
        """What moved between devices, and when."""
        return self.details.transfers(self)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Memory over time, one curve per device."""
        return self.details.curves(self)

    def span_of(self, row: int) -> Span:
        """One op in time."""
        table = self.schedule.table
        start, end = int(self.start[row]) * self.tick, int(self.end[row]) * self.tick
        stream = table.lane_stream[table.lane[row]]
        return Span(table.op(row), int(table.device[row]), stream, start, end)

    def spans(self) -> list[Span]:
        """Every op in time, lane by lane."""
        found: list[Span] = []
        row = 0
        for device, stream, ops in self.schedule.table.lanes():
            for op in ops:
                start, end = int(self.start[row]), int(self.end[row])
                found.append(Span(op, device, stream, start * self.tick, end * self.tick))
                row += 1
        return found


@dataclass(frozen=True, eq=False)
class Settled:
    """Details that are worked out already, for a timeline whose units are changed afterwards."""

    start: Ticks
    moved: Transfers
    levels: tuple[Curve, ...]

    @classmethod
    def of(cls, timeline: Timeline) -> "Settled":
        return cls(timeline.start, timeline.transfers, timeline.curves)

    def starts(self, timeline: Timeline) -> Ticks:
        return self.start

    def transfers(self, timeline: Timeline) -> Transfers:
        return self.moved

    def curves(self, timeline: Timeline) -> tuple[Curve, ...]:
        return self.levels


def busy_ticks(start: Ticks, end: Ticks) -> int:
    """Time covered by the spans of one lane; braided spans overlap and count once."""
    previous_end = np.maximum.accumulate(np.concatenate(([start[0]], end[:-1])))
    return int(np.maximum(end - np.maximum(start, previous_end), 0).sum())
