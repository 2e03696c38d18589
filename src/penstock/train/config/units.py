"""Tokens and bytes as people say them: `length = "64K"`, `limit_bytes = "80GB"`.

TOML has numbers only, so these are texts; where a key counts tokens or bytes, a text that says a
number is taken as the number. Every other text stays, and is refused as one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.core.numbers import read_bytes, read_tokens


class CountUnit(NamedTuple):
    """What a key counts."""

    read: Callable[[str], int]
    pattern: str
    """What a text may look like, for editors."""
    example: str


def _whole_bytes(text: str) -> int:
    value = read_bytes(text)
    if value.denominator > 1:
        raise ValueError(text)
    return int(value)


_TOKEN_COUNT = CountUnit(read_tokens, r"^[0-9.]+[KMG]?$", "64K")
_BYTE_COUNT = CountUnit(_whole_bytes, r"^[0-9.]+ ?([KMGTP]i?)?B?$", "80GB")

UNITS = {
    ("batch", "length"): _TOKEN_COUNT,
    ("batch", "tokens"): _TOKEN_COUNT,
    ("pipeline", "cut"): _TOKEN_COUNT,
    ("model", "window"): _TOKEN_COUNT,
    ("model", "max_positions"): _TOKEN_COUNT,
    ("data", "limit_bytes"): _BYTE_COUNT,
    ("plan", "memory"): _BYTE_COUNT,
}
"""Keys that count tokens or bytes, alone or as items of a list."""


def with_numbers(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables with a number in the place of each text that says one.

    >>> with_numbers({"batch": {"length": "64K", "rows": "2K"}})
    {'batch': {'length': 65536, 'rows': '2K'}}
    """
    return {
        section: {key: _number(UNITS.get((section, key)), value) for key, value in keys.items()}
        if isinstance(keys, dict)
        else keys
        for section, keys in tables.items()
    }


def _number(unit: CountUnit | None, value: Any) -> Any:
    if unit and isinstance(value, list):
        return [_number(unit, item) for item in value]
    if unit is None or not isinstance(value, str):
        return value
    try:
        return unit.read(value)
    except ValueError:
        return value


def with_texts(takes: dict[str, Any], unit: CountUnit) -> dict[str, Any]:
    """The schema of a key that takes a number, with the texts that say one."""
    if "anyOf" in takes:
        return takes | {"anyOf": [with_texts(each, unit) for each in takes["anyOf"]]}
    if takes.get("type") == "array":
        return takes | {"items": with_texts(takes["items"], unit)}
    if takes.get("type") != "integer":
        return takes
    around = {name: takes[name] for name in ("description", "default") if name in takes}
    number = {name: value for name, value in takes.items() if name not in around}
    text = {"type": "string", "pattern": unit.pattern, "examples": [unit.example]}
    return around | {"anyOf": [number, text]}
