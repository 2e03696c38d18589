"""Numbers, texts and switches of a row of JSON, and what each of them takes."""

from collections.abc import Callable
from typing import Any

from penstock.errors import ShapeError, shown

LARGEST_COUNT = 1 << 50
Reader = Callable[[str, Any], Any]


def whole_number(value: Any) -> Any:
    """A whole number that a table has written with a point, as an int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_count(name: str, value: Any) -> int:
    """A whole number above 0."""
    value = whole_number(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_COUNT:
        much = isinstance(value, int) and value > LARGEST_COUNT
        hint = f"give at most {LARGEST_COUNT:,}" if much else "give a whole number above 0"
        raise ShapeError(f"{name} is {shown(value)}", hint=hint)
    return value


def read_text(name: str, value: Any) -> str:
    """A text, such as a name."""
    if not isinstance(value, str):
        raise ShapeError(f"{name} is {shown(value)}", hint="give a text")
    return value


def read_switch(name: str, value: Any) -> bool:
    """Yes or no, in words or as JSON has them."""
    known: dict[Any, bool] = {True: True, False: False, "yes": True, "no": False}
    if not isinstance(value, bool | str) or value not in known:
        raise ShapeError(f"{name} is {shown(value)}", hint="give yes or no")
    return known[value]


def one_of(*known: str) -> Reader:
    """What reads one of some words."""

    def read(name: str, value: Any) -> str:
        if value not in known:
            hint = f"one of: {', '.join(known)}"
            raise ShapeError(f"{name} is {shown(value)}", hint=hint)
        return str(value)

    return read
