"""Bars of text and of SVG: how much of something there is in each of several buckets."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

BAR = "#"
"""What bars are made of: a character that every terminal has."""
ROW, LEFT, WIDTH = 22, 150, 900
"""Of the drawing, in pixels: height of a row, place of the labels, width."""


class BarRow(NamedTuple):
    """One bucket, with two shares of everything: from 0 to 1."""

    label: str
    first: float
    second: float

    @property
    def shares(self) -> tuple[float, float]:
        return self.first, self.second


def text_bars(rows: Sequence[BarRow], names: tuple[str, str], columns: int) -> str:
    """Two bars in each row, as long as their shares; the largest fills half of the columns.

    >>> print(text_bars([BarRow("1", 0.5, 0.1), BarRow("2", 0.5, 0.9)], ("a", "b"), 40))
         a              b
    1    #######  50.0% #        10.0%
    2    #######  50.0% #######  90.0%
    """
    label = max(len(row.label) for row in rows)
    room = max((columns - label - 2 * len("  100.0%")) // 2 - 4, 4)
    most = _largest(rows)
    lines = [f"{'':{label}}    {names[0]:{room + 8}}{names[1]}".rstrip()]
    for row in rows:
        bars = [BAR * _bar(share, full, room) for share, full in zip(row.shares, most)]
        cells = [f"{bar:{room}}{share:7.1%}" for bar, share in zip(bars, row.shares)]
        lines.append(f"{row.label:>{label}}    {cells[0]} {cells[1]}")
    return "\n".join(lines)


def _largest(rows: Sequence[BarRow]) -> tuple[float, float]:
    """The largest share of each kind, which has the longest bar."""
    return max(row.first for row in rows) or 1, max(row.second for row in rows) or 1


def _bar(share: float, most: float, room: int) -> int:
    """Characters of a bar; whatever is there has one."""
    return max(round(share / most * room), 1) if share else 0


def svg_bars(rows: Sequence[BarRow], names: tuple[str, str]) -> str:
    """The same as a drawing."""
    room = (WIDTH - LEFT) / 2 - 70
    parts = [_text(LEFT + at * (room + 70), 14, name) for at, name in enumerate(names)]
    for number, row in enumerate(rows):
        y = ROW * (number + 1)
        parts.append(_text(LEFT - 10, y + 14, row.label, anchor="end"))
        for at, (share, full) in enumerate(zip(row.shares, _largest(rows))):
            x, wide = LEFT + at * (room + 70), share / full * room
            parts.append(f'<rect x="{x:.1f}" y="{y + 3}" width="{wide:.1f}" height="14"/>')
            parts.append(_text(x + wide + 6, y + 14, f"{share:.1%}"))
    height = ROW * (len(rows) + 1) + 6
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="100%">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="12" fill="currentColor" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
