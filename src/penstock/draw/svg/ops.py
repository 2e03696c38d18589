"""What fills the stripes of an SVG picture: ops with their labels, and memory curves."""

from collections.abc import Iterator

from penstock.core.ops import Op
from penstock.core.shape import Shape
from penstock.draw.style import INKS, colour, ink
from penstock.draw.svg.canvas import LEFT, Box, Canvas, CanvasRow
from penstock.draw.tracks import Track
from penstock.draw.words import labels, number, unit_words
from penstock.sim.timeline import Timeline

LETTER = 5.9
"""Width of one character of a label, in pixels; a W takes half as much again."""


def lane(
    timeline: Timeline, canvas: Canvas, track: Track, row: CanvasRow, shade: list[int]
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
            f'width="{box.width:f}" height="{box.height:g}"><title>{op}, device {row.device}, '
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


def draw_memory(timeline: Timeline, canvas: Canvas, row: CanvasRow) -> Iterator[str]:
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
