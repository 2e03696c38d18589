"""Rows of text under a head, for terminals and reports."""

from collections.abc import Sequence
from io import StringIO
from textwrap import wrap

UNBROKEN = 10_000
"""Columns of a page on which no row is broken into lines: what leads into a file or a pipe."""
GAP = 3
"""Characters between two columns."""
LEAST_TEXT = 8
"""Characters that a column of words needs, so that it can be read at all."""


def render_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = UNBROKEN, color: bool
) -> str:
    """The table; columns of numbers stand right, and a cell that ends with * is bold.

    Where the page is narrow, words go on in the next line, and names in the first column and
    numbers stay whole. Where there is no room for them side by side, the cells of a row stand one
    below the other, each with its title.
    """
    numeric = [all(row[index][:1].isdigit() for row in rows) for index in range(len(head))]
    whole = [number or index == 0 < len(head) - 1 for index, number in enumerate(numeric)]
    if len(head) > 1 and _needed(head, rows, whole) > width:
        return "\n".join(_upright(head, row, width) for row in rows)
    return _side_by_side(head, rows, numeric, whole, width=width, color=color)


def _side_by_side(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    whole: Sequence[bool],
    *,
    width: int,
    color: bool,
) -> str:
    from rich.box import SIMPLE_HEAD  # deferred: most commands do without it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for title, number, kept in zip(head, numeric, whole):
        grid.add_column(title, justify="right" if number else "left", overflow="fold", no_wrap=kept)
    for row in rows:
        grid.add_row(*(Text(cell, style="bold" if cell.endswith("*") else "") for cell in row))
    page = StringIO()
    Console(file=page, width=width, force_terminal=color, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n") + "\n"


def _needed(head: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[bool]) -> int:
    """Columns of a page on which nothing is broken that should stay whole."""
    widths = (
        max(map(len, column)) if kept else LEAST_TEXT
        for kept, column in zip(whole, zip(head, *rows))
    )
    return (len(head) - 1) * GAP + sum(widths)


def _upright(head: Sequence[str], row: Sequence[str], width: int) -> str:
    """One row on a page that is too narrow for it: a line for each cell that says something."""
    gutter = max(map(len, head[1:])) + GAP
    lines = [f"{head[0]} {row[0]}".strip()]
    for title, cell in zip(head[1:], row[1:]):
        for number, part in enumerate(wrap(cell, max(width - gutter, LEAST_TEXT))):
            lines.append(f"{'' if number else title:<{gutter}}{part}")
    return "\n".join(lines) + "\n"
