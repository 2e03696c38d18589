"""Numbers of a model that can be: a file may state others, and who makes a list of so many layers
or turns by such an angle would fail far from their cause."""

from math import isfinite
from typing import Any

from penstock.errors import ShapeError, shown

MOST_MODEL_LAYERS = 10_000
LARGEST_OF_MODEL = 10**12
"""Of every other count and number; larger ones overflow where they are multiplied."""
SMALLEST_OF_MODEL = 1e-30


def refuse_count(name: str, value: Any, most: int = LARGEST_OF_MODEL) -> None:
    """Refuse what is not a whole number above 0, or too large for any model."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ShapeError(f"{name} is {_shown(value)}", hint="give an integer above 0")
    if value > most:
        raise ShapeError(f"{name} is {_shown(value)}", hint=f"give at most {most:,}")


def refuse_number(name: str, value: Any) -> None:
    """Refuse what is not a finite number above 0, or too large or too small to be computed with."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value <= 0 or (isinstance(value, float) and not isfinite(value)):
        raise ShapeError(f"{name} is {_shown(value)}", hint="give a finite number above 0")
    if not SMALLEST_OF_MODEL <= value <= LARGEST_OF_MODEL:
        raise ShapeError(
            f"{name} is {_shown(value)}",
            hint=f"give a number from {SMALLEST_OF_MODEL:g} to {LARGEST_OF_MODEL:.0e}",
        )


def _shown(value: Any) -> str:
    """A value as an error shows it, on one line; a number of thousands of digits has no text."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length():,} bits"
    return shown(value)
