"""The parts of an SVG picture that do not depend on time: style sheet, patterns and legend."""

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.core.ops import KINDS
from penstock.core.table import LETTERS
from penstock.draw.style import INKS, LOOKS, PATTERNS, SHADES, colour, shades
from penstock.sim.timeline import Timeline

LINE = 20
"""Height of one line of the legend."""

_SHEET = """
text { font: 11px ui-sans-serif, system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.paper { fill: #ffffff; }
.headline { font-size: 15px; font-weight: 600; fill: #14181d; }
.headline .size, .headline .result { font-size: 12px; font-weight: 400; fill: #5a6570; }
.headline .result { fill: #14181d; }
.name { text-anchor: end; fill: #14181d; }
.minor, .mark { fill: #6a7580; font-size: 10px; }
.mark { text-anchor: middle; }
.peak, .key { fill: #3c4650; }
.grid { stroke: #e3e7eb; fill: none; }
.memory { fill: #8b98a5; fill-opacity: .38; stroke: #6a7580; stroke-width: .75; }
.op { stroke: #ffffff; rx: 2px; }
.dark, .light { text-anchor: middle; pointer-events: none; font-size: 9px; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14181d; }
  .headline, .headline .result, .name { fill: #e8ecf0; }
  .headline .size, .minor, .mark { fill: #98a4b0; }
  .peak, .key { fill: #c4ccd4; }
  .grid { stroke: #2a3138; }
  .op { stroke: #14181d; }
}
"""


def style_sheet(gap: float) -> str:
    """The style sheet, with both inks and the width of the line between ops."""
    dark, light = INKS
    return (
        f"<style>{_SHEET}.op {{ stroke-width: {gap:.3g}; }}\n"
        f".dark {{ fill: {dark}; }}\n.light {{ fill: {light}; }}\n</style>"
    )


def definitions(timelines: Sequence[Timeline]) -> Iterator[str]:
    """A pattern and a class for every kind and shade that occurs."""
    rules: list[str] = []
    yield "<defs>"
    for kind, shade in _used(timelines):
        name, look = f"{kind}{shade}", LOOKS[kind]
        if look.pattern == "plain":
            rules.append(f".{name} {{ fill: {colour(kind, shade)}; }}")
            continue
        rules.append(f".{name} {{ fill: url(#penstock-{name}); }}")
        yield (
            f'<pattern id="penstock-{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<rect width="6" height="6" fill="{colour(kind, shade)}"/>'
            f'<path d="{PATTERNS[look.pattern]}" fill="none" stroke="#000000" '
            f'stroke-opacity=".16"/></pattern>'
        )
    yield "</defs>"
    yield f"<style>\n{chr(10).join(rules)}\n</style>"


def _used(timelines: Sequence[Timeline]) -> list[tuple[str, int]]:
    codes: set[int] = set()
    for timeline in timelines:
        pairs = timeline.schedule.table.kind.astype(np.int64) * SHADES + shades(timeline.schedule)
        codes.update(np.unique(pairs).tolist())
    return [(LETTERS[code // SHADES], code % SHADES) for code in sorted(codes)]


def legend(timelines: Sequence[Timeline], corner: tuple[int, int], room: float) -> list[str]:
    """What the colours mean: the shades of each kind that occur, in lines of at most `room`."""
    used = _used(timelines)
    left, top = corner
    x, y = left, top
    parts: list[str] = []
    for kind in dict.fromkeys(kind for kind, _ in used):
        tints = [shade for letter, shade in used if letter == kind]
        words = f"{kind}  {KINDS[kind]}"
        width = 14 * len(tints) + 30 + round(len(words) * 5.8)
        if x > left and x + width > left + room:
            x, y = left, y + LINE
        parts += _swatches(kind, tints, x, y)
        parts.append(
            f'<text class="key" x="{x + 14 * len(tints) + 6}" y="{y + 10}">{words}</text>'
        )
        x += width
    return ['<g aria-label="legend">', *parts, "</g>"]


def _swatches(kind: str, tints: list[int], x: int, y: int) -> Iterator[str]:
    for place, shade in enumerate(tints):
        box = f'x="{x + 14 * place}" y="{y}" width="14" height="12"'
        yield f'<rect class="op {kind}{shade}" {box}/>'


def bottom_of(legend: list[str]) -> int:
    """Where a legend ends."""
    return max(int(part.rpartition(' y="')[2].partition('"')[0]) for part in legend[1:-1]) + LINE
