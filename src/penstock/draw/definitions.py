"""Words and what they mean, side by side: what a table is too narrow for."""

from collections.abc import Sequence
from textwrap import wrap

INDENT = "  "


def render_definitions(pairs: Sequence[tuple[str, str]], *, width: int) -> str:
    """A line for each pair; a meaning that is too long for it goes on below itself.

    >>> pairs = [("paper", "GPipe"), ("-o k=", "four words of meaning")]
    >>> print(render_definitions(pairs, width=22))
      paper  GPipe
      -o k=  four words of
             meaning
    <BLANKLINE>
    """
    margin = max(len(word) for word, _ in pairs)
    lines = []
    for word, meaning in pairs:
        first, below = f"{INDENT}{word:<{margin}}{INDENT}", " " * (margin + 2 * len(INDENT))
        lines += wrap(
            meaning, width, initial_indent=first, subsequent_indent=below, break_on_hyphens=False
        )
    return "\n".join(lines) + "\n"
