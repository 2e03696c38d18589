"""Every error a user can meet, in one tree, so that one `except` catches them all.

    PenstockError
    +-- ShapeError       a request that no schedule can serve (exit code 2)
    +-- FormatError      a file that cannot be read; knows its line and column (exit code 2)
    +-- ScheduleError    a schedule that is refuted; carries the findings (exit code 1)
    +-- PlanError        nothing fits the limits (exit code 1)
    +-- RunError         something goes wrong while a program runs (exit code 1)

A message says what is wrong with coordinates and numbers, then the rule; the `hint` says what to
change and is printed on a line of its own.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any


class PenstockError(Exception):
    """Base of all errors that are the user's to fix; `hint` is what to do about it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ShapeError(PenstockError):
    """A request that cannot be served: a wrong number, an unknown name, a foreign option."""

    exit_code = 2


class FormatError(PenstockError):
    """A text that cannot be read; `line` and `column` count from 1."""

    exit_code = 2

    def __init__(self, message: str, *, line: int = 1, column: int = 1, hint: str = "") -> None:
        super().__init__(f"line {line}, column {column}: {message}", hint=hint)
        self.line = line
        self.column = column


class ScheduleError(PenstockError):
    """A schedule that the checker refuted; `findings` hold the reasons."""

    def __init__(self, message: str, *, findings: Sequence[Any] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = tuple(findings)


class PlanError(PenstockError):
    """No candidate satisfies the limits."""


class RunError(PenstockError):
    """Something that can only go wrong while a program runs: a lost rank, a loss that is no number,
    a checkpoint that cannot be written."""


def shown(value: object, most: int = 80) -> str:
    """A value as an error repeats it: escaped, and never longer than a line.

    >>> shown("a" * 99, 5)
    "'aaaa..."
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def nearest(word: str, known: Sequence[str]) -> str:
    """A hint for a misspelt word: the nearest known one, or the whole list when it is short."""
    begun = [name for name in known if len(word) > 1 and name.startswith(word)]
    ended = [name for name in known if len(word) > 1 and name.endswith(f"_{word}")]
    close = begun or ended or get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {shown(close[0])}?"
    return f"one of: {', '.join(name[:80] for name in known)}" if known else "none are known here"
