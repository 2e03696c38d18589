"""Rows of text under a head, for terminals and reports."""

from collections.abc import Sequence
from io import StringIO

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

    Where the page is narrow, words go on in the next line. Names in the first column and numbers
    stay whole as long as there is room for them.
    """
    from rich.box import SIMPLE_HEAD  # deferred: most commands do without it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    numeric = [all(row[index][:1].isdigit() for row in rows) for index in range(len(head))]
    whole = _kept_whole(head, rows, numeric, width)
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for title, number, kept in zip(head, numeric, whole):
        grid.add_column(title, justify="right" if number else "left", overflow="fold", no_wrap=kept)
    for row in rows:
        grid.add_row(*(Text(cell, style="bold" if cell.endswith("*") else "") for cell in row))
    page = StringIO()
    Console(file=page, width=width, force_terminal=color, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n") + "\n"


def _kept_whole(
    head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int
) -> list[bool]:
    """Which columns are not broken: none where a page is too narrow for all that should not be."""
    wanted = [number or index == 0 for index, number in enumerate(numeric)]
    needed = (len(head) - 1) * GAP + sum(
        max(map(len, column)) if kept else LEAST_TEXT
        for kept, column in zip(wanted, zip(head, *rows))
    )
    return wanted if needed <= width else [False] * len(head)
