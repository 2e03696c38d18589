"""Curves beside each other as SVG: what several runs have reached, against tokens and against time.

Two runs may be level after as many tokens and far apart after as many seconds. So the same heights
are drawn over several axes, one panel for each, all with the same scale upwards.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import NamedTuple

from penstock.draw.axis import marks
from penstock.draw.label import label

WIDTH, HEIGHT = 380, 240
"""Pixels of a panel."""
LEFT, TOP, GAP, BOTTOM = 52, 64, 36, 56
CURVE_INKS = ("#c2410c", "#1f6fb2", "#3f9a52", "#7c3aed")
DASHES = ("none", "7 4", "2 3", "9 3 2 3")
"""A colour alone must not carry meaning."""
MARKS = 6
"""Numbers along an axis, at most."""

Points = Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """One axis, and curves over it by name."""

    axis: str
    curves: Mapping[str, Points]


class PanelFrame(NamedTuple):
    """Where a panel is, and which numbers it shows."""

    left: float
    longest: float
    low: float
    high: float

    def place(self, x: float, y: float) -> tuple[float, float]:
        share = (y - self.low) / (self.high - self.low)
        return self.left + x / self.longest * WIDTH, TOP + (1 - share) * HEIGHT


def svg_curves(panels: Sequence[Panel], title: str) -> str:
    """Panels from left to right; curves have the colour and the dashes of their place."""
    width = LEFT + len(panels) * (WIDTH + GAP + LEFT) - LEFT
    height = TOP + HEIGHT + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        label(12, 20, title, anchor="start", size=13),
    ]
    parts += [_key(number, name) for number, name in enumerate(panels[0].curves)]
    for panel, frame in zip(panels, _frames(panels)):
        parts += _panel(panel, frame)
    return "\n".join([*parts, "</svg>\n"])


def _frames(panels: Sequence[Panel]) -> list[PanelFrame]:
    heights = [y for panel in panels for points in panel.curves.values() for _, y in points]
    low, high = min(heights), max(heights)
    room = (high - low or 1.0) / 20
    lengths = [max(x for points in panel.curves.values() for x, _ in points) for panel in panels]
    return [
        PanelFrame(LEFT + number * (WIDTH + GAP + LEFT), length, low - room, high + room)
        for number, length in enumerate(lengths)
    ]


def _panel(panel: Panel, frame: PanelFrame) -> list[str]:
    x, bottom = frame.left, TOP + HEIGHT
    parts = [_rule(x, bottom, x + WIDTH, bottom, "#6a7580")]
    for mark in marks(Fraction(frame.longest), MARKS):
        across, _ = frame.place(float(mark), frame.low)
        parts.append(label(across, bottom + 16, f"{float(mark):,g}"))
    for mark in marks(Fraction(frame.high), MARKS * 2):
        if frame.low <= mark <= frame.high:
            _, up = frame.place(0, float(mark))
            parts.append(_rule(x, up, x + WIDTH, up, "#e3e7eb"))
            parts.append(label(x - 8, up + 4, f"{float(mark):g}", anchor="end"))
    parts.append(label(x + WIDTH / 2, bottom + 38, panel.axis))
    curves = enumerate(panel.curves.items())
    return [*parts, *(_curve(number, name, points, frame) for number, (name, points) in curves)]


def _curve(number: int, name: str, points: Points, frame: PanelFrame) -> str:
    places = " ".join("{:.1f},{:.1f}".format(*frame.place(x, y)) for x, y in points)
    title = f"<title>{escape(name)}</title>"
    return f'<polyline points="{places}" fill="none" {_line(number)}>{title}</polyline>'


def _key(number: int, name: str) -> str:
    x, y = LEFT + 150 * number, 40
    return (
        f'<line x1="{x}" y1="{y}" x2="{x + 28}" y2="{y}" {_line(number)}/>'
        f"{label(x + 34, y + 4, name, anchor='start')}"
    )


def _line(number: int) -> str:
    ink, dashes = CURVE_INKS[number % len(CURVE_INKS)], DASHES[number % len(DASHES)]
    return f'stroke="{ink}" stroke-width="2" stroke-dasharray="{dashes}"'


def _rule(x: float, y: float, to_x: float, to_y: float, ink: str) -> str:
    return f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{ink}"/>'
