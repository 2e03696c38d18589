"""A timeline as one SVG picture, for papers, pages and slides.

Every coordinate in time is a whole number of quanta times one decimal scale, so the picture is
exactly proportional, and two schedules under each other can be compared with a ruler.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from html import escape
from typing import NamedTuple

import numpy as np

from penstock.core.ops import Op
from penstock.core.shape import Shape
from penstock.draw.axis import Axis, axis_of, marks
from penstock.draw.style import INKS, colour, ink, shades
from penstock.draw.svg_style import LEGEND, definitions, legend, style_sheet
from penstock.draw.tracks import Track, tracks
from penstock.draw.words import labels, listed, number, result_words, size_words, unit_words
from penstock.sim.timeline import Ticks, Timeline

LEFT, RIGHT = 76, 60
"""Room for device names and for peaks, in pixels."""
HEADER, LANE, STRAND, STREAM, MEMORY, GAP = 52, 24, 17, 15, 18, 7
"""Heights of a headline with its axis, a compute lane, one strand of a braided lane, a lane of
another stream, a memory curve, and the gap below a device."""
NARROWEST, WIDEST, READABLE = 900, 2840, 24
"""Least and greatest length of the time axis, and the pixels it tries to give a typical op."""
LETTER = 5.9
"""Width of one character of a label; a W takes half as much again."""


class Canvas(NamedTuple):
    """The measures of the whole picture."""

    axis: Axis
    scale: Decimal
    """Pixels per quantum."""
    peak: Fraction
    """Memory that fills the height of a curve; the same everywhere, so curves can be compared."""

    def x(self, quanta: int) -> Decimal:
        return LEFT + quanta * self.scale


class Row(NamedTuple):
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


def render(timelines: Sequence[Timeline]) -> str:
    """Draw timelines under each other on one time axis."""
    canvas = _canvas(timelines)
    top = 0
    parts: list[str] = []
    for timeline in timelines:
        rows = _rows(timeline, top + HEADER)
        parts += _block(timeline, canvas, top, rows)
        top = rows[-1].top + rows[-1].height + GAP
    parts += legend(timelines, LEFT, top + 16)
    opening = _opening(timelines, canvas, top + LEGEND)
    return "\n".join([*opening, *parts, "</svg>", ""])


def _canvas(timelines: Sequence[Timeline]) -> Canvas:
    axis = axis_of(timelines)
    typical = min(int(np.median(_lengths(timeline, axis))) for timeline in timelines)
    length = min(max(READABLE * axis.length // typical, NARROWEST), WIDEST)
    scale = Decimal(f"{Decimal(length) / axis.length:.4g}")
    return Canvas(axis, scale, max((max(t.peak) for t in timelines), default=Fraction(0)))


def _lengths(timeline: Timeline, axis: Axis) -> Ticks:
    """Lengths of the ops that take time, in quanta."""
    lengths = axis.quanta(timeline, timeline.end) - axis.quanta(timeline, timeline.start)
    return lengths[lengths > 0] if lengths.any() else lengths + 1


def _shortest(timelines: Sequence[Timeline], axis: Axis) -> int:
    return min(int(_lengths(timeline, axis).min()) for timeline in timelines)


def _rows(timeline: Timeline, top: int) -> list[Row]:
    """Stripes of one timeline, from the top: per device its lanes, then its memory."""
    rows: list[Row] = []
    lanes = [track for track in tracks(timeline) if track.strand == 0]
    for device in range(timeline.schedule.shape.devices):
        for track in (lane for lane in lanes if lane.device == device):
            single = LANE if track.stream == "compute" else STREAM
            height = single if track.strands == 1 else STRAND * track.strands
            rows.append(Row(device, track.stream, top, height))
            top += height + 1
        rows.append(Row(device, "memory", top, MEMORY))
        top += MEMORY + GAP
    return rows


def _opening(timelines: Sequence[Timeline], canvas: Canvas, height: int) -> list[str]:
    width = canvas.x(canvas.axis.length) + RIGHT
    title = escape(listed([timeline.name for timeline in timelines]))
    facts = "; ".join(
        ", ".join((f"{escape(t.name)}: {size_words(t.schedule.shape)}", *result_words(t)))
        for t in timelines
    )
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="title desc">',
        f'<title id="title">Timeline of {title}</title>',
        f'<desc id="desc">One row per device, time from left to right, idle time left empty, '
        f"memory under each device. {facts}</desc>",
        style_sheet(min(0.8, float(canvas.scale) * _shortest(timelines, canvas.axis) / 8)),
        *definitions(timelines),
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]


def _block(timeline: Timeline, canvas: Canvas, top: int, rows: list[Row]) -> Iterator[str]:
    """One timeline: headline, axis, lanes and memory curves."""
    shape, facts = timeline.schedule.shape, result_words(timeline)
    yield f'<g aria-label="{escape(timeline.name)}">'
    yield (
        f'<text class="headline" x="{LEFT}" y="{top + 20}">{escape(timeline.name)}'
        f'<tspan class="size" dx="14">{size_words(shape)}</tspan>'
        + "".join(f'<tspan class="result" dx="14">{fact}</tspan>' for fact in facts)
        + "</text>"
    )
    yield from _axis(canvas, top + HEADER, rows[-1].top + MEMORY)
    for row in rows:
        yield from _row_name(row)
    places = {(row.device, row.stream): row for row in rows}
    shade = shades(timeline.schedule)
    for track in tracks(timeline):
        row = places[track.device, track.stream]
        yield from _lane(timeline, canvas, track, row, shade[track.rows].tolist())
    for device in range(shape.devices):
        yield from _memory(timeline, canvas, places[device, "memory"])
    yield "</g>"


def _axis(canvas: Canvas, top: int, bottom: int) -> Iterator[str]:
    yield f'<text class="name" x="{LEFT - 10}" y="{top - 8}">time</text>'
    most = int(canvas.axis.length * canvas.scale) // 70
    for mark in marks(canvas.axis.time, most):
        x = canvas.x(int(mark / canvas.axis.quantum))
        yield f'<path class="grid" d="M{x} {top - 4}V{bottom}"/>'
        yield f'<text class="mark" x="{x}" y="{top - 8}">{number(mark)}</text>'


def _row_name(row: Row) -> Iterator[str]:
    words = {"compute": f"device {row.device}", "memory": "memory"}.get(row.stream, row.stream)
    kind = "name" if row.stream == "compute" else "name minor"
    middle = row.top + row.height / 2 + 4
    yield f'<text class="{kind}" x="{LEFT - 10}" y="{middle:g}">{words}</text>'


def _lane(
    timeline: Timeline, canvas: Canvas, track: Track, row: Row, shade: list[int]
) -> Iterator[str]:
    """The ops of one track: a rectangle each, and a label where it fits."""
    table, shape = timeline.schedule.table, timeline.schedule.shape
    start = canvas.axis.quanta(timeline, timeline.start[track.rows]).tolist()
    end = canvas.axis.quanta(timeline, timeline.end[track.rows]).tolist()
    part, quantum = row.height / track.strands, float(canvas.axis.quantum)
    room = _letters(shape)
    for place, index in enumerate(track.rows.tolist()):
        whole = bool(track.alone[place])
        box = Box(
            canvas.x(start[place]),
            (end[place] - start[place]) * canvas.scale,
            row.top if whole else row.top + part * track.strand,
            row.height if whole else part,
        )
        op, tint = table.op(index), shade[place]
        yield (
            f'<rect class="op {op.kind}{tint}" x="{box.left}" y="{box.top:g}" '
            f'width="{box.width}" height="{box.height:g}"><title>{op}, device {row.device}, '
            f"{number(start[place] * quantum)} to {number(end[place] * quantum)}</title></rect>"
        )
        for text, letters in zip(_texts(op, shape), room):
            if letters * LETTER <= box.width:
                yield _label(text, box, ink(colour(op.kind, tint)))
                break


def _texts(op: Op, shape: Shape) -> list[str]:
    """Labels from the fullest on; colour says the kind where only the numbers fit."""
    *full, letter = labels(op, shape)
    return [*full, unit_words(op), letter]


def _letters(shape: Shape) -> list[float]:
    """Letters of the longest label of each form: ops of equal width then show the same form."""
    last = Op("W", shape.stages - 1, shape.microbatches - 1, max(shape.slices) - 1)
    return [len(text) + 0.5 * text.count("W") for text in _texts(last, shape)]


def _label(text: str, box: Box, letters: str) -> str:
    tone = "dark" if letters == INKS[0] else "light"
    x, y = box.left + box.width / 2, box.top + box.height / 2 + 3.6
    return f'<text class="{tone}" x="{x}" y="{y:g}">{text}</text>'


def _memory(timeline: Timeline, canvas: Canvas, row: Row) -> Iterator[str]:
    """The memory curve of one device as steps, and its peak at the right."""
    curve = timeline.curves[row.device]
    bottom = row.top + row.height
    pieces = [f"M{LEFT} {bottom}"]
    unit = float(row.height * timeline.grain / canvas.peak) if canvas.peak else 0.0
    times = canvas.axis.quanta(timeline, curve.time).tolist()
    for time, level in zip(times, curve.level.tolist()):
        pieces.append(f"H{canvas.x(time)}V{bottom - level * unit:g}")
    pieces.append(f"H{canvas.x(canvas.axis.length)}V{bottom}Z")
    yield f'<path class="memory" d="{"".join(pieces)}"/>'
    x = canvas.x(canvas.axis.length) + 10
    peak = number(timeline.peak[row.device])
    yield f'<text class="peak" x="{x}" y="{bottom - 4}">{peak}</text>'
