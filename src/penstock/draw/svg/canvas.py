"""Where everything stands in an SVG picture: pixels per quantum, stripes, boxes."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from penstock.core.table import Ticks
from penstock.draw.axis import Axis, axis_of
from penstock.draw.tracks import tracks
from penstock.sim.timeline import Timeline

LEFT, RIGHT = 76, 60
"""Room for device names and for peaks, in pixels."""
HEADER, LANE, STRAND, STREAM, MEMORY, GAP = 52, 24, 17, 15, 18, 7
"""Heights of a headline with its axis, a compute lane, one strand of a braided lane, a lane of
another stream, a memory curve, and the gap below a device."""
NARROWEST, WIDEST, READABLE = 900, 2840, 24
"""Least and greatest length of the time axis, and the pixels it tries to give a typical op."""


class Canvas(NamedTuple):
    """The measures of the whole picture."""

    axis: Axis
    scale: Decimal
    """Pixels per quantum."""
    peak: Fraction
    """Memory that fills the height of a curve; the same everywhere, so curves can be compared."""
    gap: float
    """Width of the line between ops."""

    def x(self, quanta: int) -> Decimal:
        return LEFT + quanta * self.scale


class CanvasRow(NamedTuple):
    """One stripe of the picture: a lane, or the memory curve of a device."""

    device: int
    stream: str
    top: int
    height: int


class Box(NamedTuple):
    """Where an op is drawn."""

    left: Decimal
    width: Decimal
    top: float
    height: float


def canvas_of(timelines: Sequence[Timeline]) -> Canvas:
    """As wide as typical ops need, within what a page can show."""
    axis = axis_of(timelines)
    lengths = [_lengths(timeline, axis) for timeline in timelines]
    typical = min(int(np.median(column)) for column in lengths)
    length = min(max(READABLE * axis.length // typical, NARROWEST), WIDEST)
    scale = Decimal(f"{Decimal(length) / axis.length:.4g}")
    shortest = min(int(column.min()) for column in lengths)
    peak = max(max(timeline.peak) for timeline in timelines)
    return Canvas(axis, scale, peak, min(0.8, float(scale) * shortest / 8))


def _lengths(timeline: Timeline, axis: Axis) -> Ticks:
    """Lengths of the ops that take time, in quanta."""
    lengths = axis.quanta(timeline, timeline.end) - axis.quanta(timeline, timeline.start)
    return lengths[lengths > 0] if lengths.any() else lengths + 1


def rows_of(timeline: Timeline, top: int) -> list[CanvasRow]:
    """Stripes of one timeline, from the top: per device its lanes, then its memory."""
    rows: list[CanvasRow] = []
    lanes = [track for track in tracks(timeline) if track.strand == 0]
    for device in range(timeline.schedule.shape.devices):
        for track in (lane for lane in lanes if lane.device == device):
            single = LANE if track.stream == "compute" else STREAM
            height = single if track.strands == 1 else STRAND * track.strands
            rows.append(CanvasRow(device, track.stream, top, height))
            top += height + 1
        rows.append(CanvasRow(device, "memory", top, MEMORY))
        top += MEMORY + GAP
    return rows
