"""Numbers of the command line, read exactly.

`0.1` must mean one tenth and not the nearest float, or a closed form could not be compared with
`==`. Only plain decimals and fractions are read: an exponent could spell a number that takes
minutes to write out.
"""

import re
from collections.abc import Iterable
from fractions import Fraction

from penstock.errors import ShapeError

_NUMBER = re.compile(r"-?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}|\d{1,9}/\d{1,9})")
_EXPONENT = re.compile(r"[\d.][eE][+-]?\d", re.ASCII)
_LONGEST_VALUE = 60


def parse_number(what: str, text: str) -> Fraction:
    """A decimal or a fraction, at least 0."""
    try:
        value = Fraction(text) if _NUMBER.fullmatch(text) and text.isascii() else None
    except ZeroDivisionError:
        value = None
    if value is None:
        raise ShapeError(
            f"{what} is {text[:_LONGEST_VALUE]!r}, which is not a number that can be read",
            hint="write it as 2, 0.25 or 1/3, with at most nine digits in a row",
        )
    if value < 0:
        raise ShapeError(f"{what} is {text}, but must not be negative", hint="give 0 or more")
    return value


def amounts(flag: str, text: str) -> dict[str, Fraction]:
    """The numbers of a list such as `F=1,I=1/2`."""
    items = assignments(flag, text.split(",") if text else [])
    return {key: parse_number(f"{flag} {key}", value) for key, value in items.items()}


def assignments(flag: str, items: Iterable[str]) -> dict[str, str]:
    """`key=value` items as a mapping; a key stands once."""
    found: dict[str, str] = {}
    for item in items:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not (key and equals and value):
            raise ShapeError(
                f"{flag} has {item[:_LONGEST_VALUE]!r} where key=value is wanted",
                hint=f"write it as {flag} key=value, without spaces",
            )
        if key in found:
            raise ShapeError(
                f"{flag} sets {key} twice, to {found[key]} and to {value}",
                hint="leave one of them out",
            )
        found[key] = _sane(flag, key, value)
    return found


def _sane(flag: str, key: str, value: str) -> str:
    """Values go on to the parsers of options, which must not meet a number without end."""
    if len(value) > _LONGEST_VALUE or _EXPONENT.search(value):
        raise ShapeError(
            f"{flag} {key}={value[:_LONGEST_VALUE]} is not a value that can be read",
            hint="write numbers out, as 2, 0.25 or 1/3",
        )
    return value
