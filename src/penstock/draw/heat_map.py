"""A square of numbers between blocks of a model as text and as SVG, on a logarithmic scale.

block  0  1  2  3       1 depends on 0 by 0.1 or more, 3 on 2 by less than 0.01
    0  .  #  +  -       . itself, or in front of the block that is left out
    1  .  .  =  -
    2  .  .  .  -
"""

from collections.abc import Sequence
from math import log10

from penstock.draw.label import label

LEVELS = ((1e-3, ":"), (1e-2, "-"), (3e-2, "="), (1e-1, "+"), (3e-1, "*"))
"""Numbers up to these have the character; above the last they have `MOST`."""
MOST, NOTHING = "#", "."
PALEST = 1e-4
"""The palest colour; the darkest is 1."""
CELL, LEFT, TOP = 26, 96, 58
"""Pixels of a square, and of the room for labels."""
LETTER_WIDTH = 0.55
"""Width of a letter, of the size of its font."""
PALE, DARK = (255, 246, 214), (150, 30, 20)
MOST_WRITTEN = 16
"""Blocks up to which the drawing has numbers in its squares."""

Square = Sequence[Sequence[float]]


def text_heat_map(square: Square) -> str:
    """Rows are blocks that are left out, columns those that are looked at.

    >>> print(text_heat_map([[0, 0.2, 0.005], [0, 0, 0.02], [0, 0, 0]]))
    left out   0  1  2
           0   .  *  -
           1   .  .  =
           2   .  .  .
    . nothing  : 0.001  - 0.01  = 0.03  + 0.1  * 0.3  # above: largest numbers of each
    """
    columns = range(len(square))
    lines = ["left out " + "".join(f"{at:3}" for at in columns)]
    for at, row in enumerate(square):
        lines.append(f"{at:8} " + "".join(f"{_character(at, to, row[to]):>3}" for to in columns))
    legend = "  ".join(f"{character} {most:g}" for most, character in LEVELS)
    lines.append(f"{NOTHING} nothing  {legend}  {MOST} above: largest numbers of each")
    return "\n".join(lines)


def _character(left_out: int, looked_at: int, number: float) -> str:
    if looked_at <= left_out or number == 0:
        return NOTHING
    return next((character for most, character in LEVELS if number <= most), MOST)


def svg_heat_map(square: Square, runs: Sequence[range], title: str) -> str:
    """The same as a drawing; runs have a frame."""
    size = len(square)
    legend = f"pale {PALEST:g} or less, dark 1, logarithmic; frames: runs that are fused"
    words = max(13 * len(title), 11 * len(legend)) * LETTER_WIDTH
    width, height = max(LEFT + size * CELL + 20, 24 + round(words)), TOP + size * CELL + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        label(12, 18, title, anchor="start", size=13),
        label(LEFT + size * CELL / 2, TOP - 20, "block that is looked at"),
        label(LEFT - 40, TOP - 6, "left out"),
    ]
    for at in range(size):
        parts.append(label(LEFT + (at + 0.5) * CELL, TOP - 6, str(at)))
        parts.append(label(LEFT - 10, TOP + (at + 0.65) * CELL, str(at), anchor="end"))
    parts += [_square(square, at, to) for at in range(size) for to in range(at + 1, size)]
    parts += [_frame(run) for run in runs]
    return "\n".join([*parts, label(12, height - 14, legend, anchor="start"), "</svg>\n"])


def _square(square: Square, left_out: int, looked_at: int) -> str:
    number = square[left_out][looked_at]
    share = 1 - min(max(log10(max(number, PALEST)) / log10(PALEST), 0.0), 1.0)
    shade = [round(pale + share * (dark - pale)) for pale, dark in zip(PALE, DARK)]
    x, y = LEFT + looked_at * CELL, TOP + left_out * CELL
    colour = "#{:02x}{:02x}{:02x}".format(*shade)
    title = f"<title>{looked_at} without {left_out}: {number:.2g}</title>"
    found = f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{colour}">{title}</rect>'
    if len(square) > MOST_WRITTEN:
        return found
    ink = "#ffffff" if share > 0.6 else "#222222"
    return found + label(x + CELL / 2, y + CELL * 0.65, _short(number), size=9, ink=ink)


def _short(number: float) -> str:
    """
    >>> _short(0.1234), _short(0.00004)
    ('.12', '4e-5')
    """
    if number >= 0.995:
        return f"{number:.0f}"
    if number >= 0.005:
        return f"{number:.2f}"[1:]
    return f"{number:.0e}".replace("e-0", "e-")


def _frame(run: range) -> str:
    x, y, side = LEFT + run.start * CELL, TOP + run.start * CELL, len(run) * CELL
    line = 'fill="none" stroke="#1f6fb2" stroke-width="2.5"'
    return f'<rect x="{x}" y="{y}" width="{side}" height="{side}" {line}/>'
