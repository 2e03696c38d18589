"""Numbers of the command line, read exactly and refused with the flag that has them."""

from collections.abc import Callable, Iterable
from fractions import Fraction

from penstock.core.numbers import read_bytes, read_number
from penstock.errors import ShapeError

Read = Callable[[str], Fraction]

_LONGEST_VALUE = 60


def parse_number(what: str, text: str) -> Fraction:
    """A number of at least 0: a decimal, a float as programs print it, or a fraction."""
    return _parse(what, text, read_number, "write it as 2, 0.25, 1e-3 or 1/3")


def parse_bytes(what: str, text: str) -> Fraction:
    """A number of at least 0 that may have a unit of bytes."""
    return _parse(what, text, read_bytes, "write it as 2, 0.25, 1e-3, 1/3, 80GB or 512MiB")


def _parse(what: str, text: str, read: Read, hint: str) -> Fraction:
    try:
        value = read(text)
    except ValueError:
        raise ShapeError(
            f"{what} is {text[:_LONGEST_VALUE]!r}, which is not a number that can be read",
            hint=f"{hint}, from 1e-18 to 1e18",
        ) from None
    if value < 0:
        raise ShapeError(f"{what} is {text}, but must not be negative", hint="give 0 or more")
    return value


def times_of(flag: str, text: str) -> dict[str, Fraction]:
    """The numbers of a list such as `F=1,I=1/2`."""
    return _amounts(flag, text, parse_number)


def sizes_of(flag: str, text: str) -> dict[str, Fraction]:
    """The same for memory, where units of bytes may stand: `act=2GB`."""
    return _amounts(flag, text, parse_bytes)


def _amounts(flag: str, text: str, read: Callable[[str, str], Fraction]) -> dict[str, Fraction]:
    items = assignments(flag, text.split(",") if text else [])
    return {key: read(f"{flag} {key}", value) for key, value in items.items()}


def assignments(flag: str, items: Iterable[str]) -> dict[str, str]:
    """`key=value` items as a mapping; a key stands once."""
    found: dict[str, str] = {}
    for item in items:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not (key and equals and value):
            raise ShapeError(
                f"{flag} has {item[:_LONGEST_VALUE]!r} where key=value is expected",
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
    """Values go on to the parsers of options and into messages, which end."""
    if len(value) > _LONGEST_VALUE:
        raise ShapeError(
            f"{flag} {key}={value[:_LONGEST_VALUE]} is not a value that can be read",
            hint=f"give at most {_LONGEST_VALUE} characters",
        )
    return value
