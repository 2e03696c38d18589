"""Numbers as people and programs write them, read as exact fractions.

`0.1` must mean one tenth and not the nearest float, or a closed form could not be compared with
`==`. But times are often printed by a program, and a float has more digits than it means:
0.366412213740458 is 48/131. So a number of up to nine decimals is exact, and one of more is rounded
here and nowhere else: to a fraction with a denominator of at most 1,000 where one agrees with it,
or else to nine digits. Numbers have a largest and a smallest size, because `1e999999999` would take
minutes to write out.
"""

import re
from fractions import Fraction
from math import floor, log10

DECIMALS = 9
"""Decimals that are taken as they are, and digits that are left of more."""
LARGEST_NUMBER = Fraction(10**18)
SMALLEST_NUMBER = 1 / LARGEST_NUMBER
_SIMPLE = 1000
_AGREES = Fraction(2, 10**12)
"""How far, as a share, a simple fraction may be from the number that it stands for."""

_NUMBER = re.compile(
    r"-?(?:(?:\d{1,18}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?|\d{1,300}/\d{1,300})",
    re.ASCII,
)
_BYTES = re.compile(r"(.*?) ?([KMGTP]?)(i?)B", re.ASCII)
_TOKENS = re.compile(r"(.*?)([KMG])", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def read_number(text: str) -> Fraction:
    """A whole number, decimal, float or fraction; a ValueError for anything else.

    >>> read_number("0.1"), read_number("0.366412213740458"), read_number("1e-3")
    (Fraction(1, 10), Fraction(48, 131), Fraction(1, 1000))
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    if "/" in text:
        whole, _, parts = text.partition("/")
        if not int(parts):
            raise ValueError(f"{text[:40]!r} divides by 0")
        return Fraction(int(whole), int(parts))
    value = Fraction(text)
    if value and not SMALLEST_NUMBER <= abs(value) <= LARGEST_NUMBER:
        raise ValueError(f"{text[:40]!r} is not between 1e-18 and 1e18")
    return value if value.denominator <= 10**DECIMALS else _rounded(value)


def _rounded(value: Fraction) -> Fraction:
    simple = value.limit_denominator(_SIMPLE)
    if abs(simple - value) <= _AGREES * abs(value):
        return simple
    below_one = max(0, -floor(log10(abs(value))) - 1)
    digits = DECIMALS + below_one
    return Fraction(round(value * 10**digits), 10**digits)


def read_bytes(text: str) -> Fraction:
    """A number, or one with a unit of bytes: powers of 1,000, or of 1,024 with an i.

    >>> int(read_bytes("80GB")), int(read_bytes("1.5 KiB")), int(read_bytes("7"))
    (80000000000, 1536, 7)
    """
    found = _BYTES.fullmatch(text)
    if found is None:
        return read_number(text)
    factor: int = (1024 if found[3] else 1000) ** _POWERS[found[2]]
    return read_number(found[1]) * factor


def read_tokens(text: str) -> int:
    """A whole number, or one with K, M or G, which are powers of 1,024 as in `a context of 64K`.

    >>> read_tokens("64K"), read_tokens("0.5M"), read_tokens("1e3")
    (65536, 524288, 1000)
    """
    found = _TOKENS.fullmatch(text)
    factor: int = 1024 ** _POWERS[found[2]] if found else 1
    value = read_number(found[1] if found else text) * factor
    if value.denominator > 1:
        raise ValueError(f"{text[:40]!r} is not an integer")
    return int(value)
