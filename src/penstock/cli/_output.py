"""What a verb may say, and where: data on stdout, words on stderr.

A script reads stdout, so nothing but the answer goes there. Colour is an addition for people at a
terminal and never the only carrier of a fact. A reader that goes away (`| head`) is no error.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from json import dumps
from shutil import get_terminal_size
from typing import Any

import typer

from penstock.draw.table import UNBROKEN, render_table
from penstock.errors import ShapeError
from penstock.terminal import encodable, printable, printable_colours, say_error

BROKEN_PIPE = 141
"""128 + SIGPIPE, the status a shell gives to a program that the signal ended."""
WIDTH_WITHOUT_TERMINAL = 120
TEXT_WIDTH = 80
"""Columns of text where there is no terminal to ask."""


def emit(text: str) -> None:
    """Print data."""
    shown = printable_colours(text) if has_color() else printable(text)
    writable = encodable(shown, sys.stdout)
    try:
        sys.stdout.write(writable if writable.endswith("\n") else writable + "\n")
        sys.stdout.flush()
    except OSError as error:
        _close_stdout()
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(BROKEN_PIPE) from None
        raise ShapeError(
            f"the output cannot be written: {error.strerror}", hint="check where stdout goes"
        ) from None


def _close_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def emit_json(data: Any) -> None:
    """Print data as JSON."""
    emit(dumps(data, indent=2))


def note(text: str) -> None:
    """Say something to the person at the terminal."""
    say_error(text)


def has_color() -> bool:
    """Whether stdout is a terminal that may be sent colours (https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def width() -> int:
    """Columns that fit on the screen, or a fixed number where there is none."""
    return get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns


def text_width() -> int:
    """Columns for sentences, which are broken into lines also on their way into a file."""
    return get_terminal_size((TEXT_WIDTH, 24)).columns


def emit_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, columns: int | None = None
) -> None:
    """Print rows of text under a head."""
    # A table that leads into a file or a pipe must not be broken into lines of a screen.
    fitting = width() if sys.stdout.isatty() else UNBROKEN
    emit(render_table(head, list(rows), width=columns or fitting, color=has_color()))
