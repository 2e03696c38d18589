"""A timeline as one SVG picture, for papers, pages and slides.

Every coordinate in time is a whole number of quanta times one decimal scale, so the picture is
exactly proportional, and two schedules under each other can be compared with a ruler.
"""

from collections.abc import Iterator, Sequence
from html import escape

from penstock.draw.axis import marks
from penstock.draw.style import shades
from penstock.draw.svg.canvas import (
    GAP,
    HEADER,
    LEFT,
    MEMORY,
    RIGHT,
    Canvas,
    CanvasRow,
    canvas_of,
    rows_of,
)
from penstock.draw.svg.ops import draw_memory, lane
from penstock.draw.svg.style import LINE, definitions, keys, legend, style_sheet
from penstock.draw.tracks import tracks
from penstock.draw.words import (
    name_words,
    number,
    result_words,
    size_words,
    summary_words,
    title_words,
)
from penstock.sim.timeline import Timeline


def render(timelines: Sequence[Timeline], among: Sequence[Timeline] = ()) -> str:
    """Draw timelines under each other on one time axis: long enough for them and for those `among`
    which they will be looked at."""
    canvas = canvas_of([*timelines, *among])
    top = 0
    parts: list[str] = []
    for timeline in timelines:
        rows = rows_of(timeline, top + HEADER)
        parts += _block(timeline, canvas, top, rows)
        top = rows[-1].top + rows[-1].height + GAP
    entries = keys(timelines, float(canvas.x(canvas.axis.length)) - LEFT)
    parts += legend(entries, LEFT, top + 16)
    opening = _opening(timelines, canvas, top + 22 + LINE * (entries[-1].line + 1))
    return "\n".join([*opening, *parts, "</svg>", ""])


def _opening(timelines: Sequence[Timeline], canvas: Canvas, height: int) -> list[str]:
    width = canvas.x(canvas.axis.length) + RIGHT
    key = timelines[0].schedule.digest[:8]  # several pictures may stand in one document
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="title-{key} desc-{key}">',
        f'<title id="title-{key}">{escape(title_words(timelines))}</title>',
        f'<desc id="desc-{key}">{escape(summary_words(timelines))}</desc>',
        style_sheet(canvas.gap),
        *definitions(timelines),
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]


def _block(timeline: Timeline, canvas: Canvas, top: int, rows: list[CanvasRow]) -> Iterator[str]:
    """One timeline: headline, axis, lanes and memory curves."""
    shape, facts = timeline.schedule.shape, result_words(timeline)
    name = escape(name_words(timeline))
    yield f'<g aria-label="{name}">'
    yield (
        f'<text class="headline" x="{LEFT}" y="{top + 20}">{name}'
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
        yield from lane(timeline, canvas, track, row, shade[track.rows].tolist())
    for device in range(shape.devices):
        yield from draw_memory(timeline, canvas, places[device, "memory"])
    yield "</g>"


def _axis(canvas: Canvas, top: int, bottom: int) -> Iterator[str]:
    yield f'<text class="name" x="{LEFT - 10}" y="{top - 8}">time</text>'
    most = int(canvas.axis.length * canvas.scale) // 70
    for mark in marks(canvas.axis.time, most):
        x = canvas.x(int(mark / canvas.axis.quantum))
        yield f'<path class="grid" d="M{x} {top - 4}V{bottom}"/>'
        yield f'<text class="mark" x="{x}" y="{top - 8}">{number(mark)}</text>'


def _row_name(row: CanvasRow) -> Iterator[str]:
    words = {"compute": f"device {row.device}", "memory": "memory"}.get(row.stream, row.stream)
    kind = "name" if row.stream == "compute" else "name minor"
    middle = row.top + row.height / 2 + 4
    yield f'<text class="{kind}" x="{LEFT - 10}" y="{middle:g}">{words}</text>'
