"""The parts of an SVG picture that do not depend on time: style sheet, patterns and legend."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from penstock.core.ops import KINDS
from penstock.core.table import LETTERS
from penstock.draw.style import INKS, LOOKS, PATTERNS, SHADES, colour, shades
from penstock.sim.timeline import Timeline

LINE, SWATCH = 20, 14
"""Height of one line of the legend, and width of one shade in it."""

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


class LegendKey(NamedTuple):
    """One entry of the legend: a kind, the shades that occur, and where it stands."""

    kind: str
    tints: list[int]
    x: int
    line: int

    @property
    def words(self) -> str:
        return f"{self.kind}  {KINDS[self.kind]}"

    @property
    def width(self) -> int:
        return SWATCH * len(self.tints) + 30 + round(len(self.words) * 5.8)


def keys(timelines: Sequence[Timeline], room: float) -> list[LegendKey]:
    """The legend, broken into lines of at most `room` pixels."""
    used = _used(timelines)
    found: list[LegendKey] = []
    x = line = 0
    for kind in dict.fromkeys(kind for kind, _ in used):
        key = LegendKey(kind, [shade for letter, shade in used if letter == kind], x, line)
        if x and x + key.width > room:
            line += 1
            key = key._replace(x=0, line=line)
        found.append(key)
        x = key.x + key.width
    return found


def legend(entries: Sequence[LegendKey], left: int, top: int) -> Iterator[str]:
    """What the colours mean: the shades of each kind that occurs."""
    yield '<g aria-label="legend">'
    for key in entries:
        x, y = left + key.x, top + LINE * key.line
        for place, shade in enumerate(key.tints):
            box = f'x="{x + SWATCH * place}" y="{y}" width="{SWATCH}" height="12"'
            yield f'<rect class="op {key.kind}{shade}" {box}/>'
        start = x + SWATCH * len(key.tints) + 6
        yield f'<text class="key" x="{start}" y="{y + 10}">{key.words}</text>'
    yield "</g>"
