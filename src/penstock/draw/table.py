"""Rows of text under a head, for terminals and reports."""

from collections.abc import Sequence
from io import StringIO

UNBROKEN = 10_000
"""Columns of a page on which no row is broken into lines: what leads into a file or a pipe."""


def render_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = UNBROKEN, color: bool
) -> str:
    """The table; columns of numbers stand right, and a cell that ends with * is bold."""
    from rich.box import SIMPLE_HEAD  # deferred: most commands do without it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for index, title in enumerate(head):
        numeric = all(row[index][:1].isdigit() for row in rows)
        grid.add_column(title, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell, style="bold" if cell.endswith("*") else "") for cell in row))
    page = StringIO()
    Console(file=page, width=width, force_terminal=color, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n") + "\n"
