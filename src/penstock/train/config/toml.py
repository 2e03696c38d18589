"""TOML with places: what a text says, where a key stands in it, and how to write values back.

The standard library reads TOML and does not remember where anything stood; it does not write.
A place is only needed for a complaint, so it is found then, by reading the text again from the top.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import FormatError

LARGEST_FILE = 1_000_000
"""Bytes above which a text is no configuration."""
LONGEST_SEARCH = 1_000
"""Lines among which a key is looked for: the search reads the text once for each line."""

Path = tuple[str, ...]
"""Names of tables, and of the key in the last of them."""

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def parse(text: str) -> dict[str, Any]:
    """The tables of a text, or an error with its place."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise FormatError("tables or lists are nested too deeply", hint="use fewer") from None
    except ValueError as error:
        message = str(error)
        found = _PLACE.search(message)
        end = (text.count("\n") + 1, len(text) - text.rfind("\n"))
        line, column = (int(found[1]), int(found[2])) if found and found[1] else end
        reason = message[: found.start()] if found else message
        raise FormatError(
            f"this is not TOML: {reason}",
            line=line,
            column=column,
            hint='write key = value; texts stand in "quotes"',
        ) from None


def place(text: str, path: Path) -> tuple[int, int]:
    """Line and column, from 1, of the key or table at a path.

    The first lines of a text that are TOML by themselves and hold the path end with its value, so
    the value began after the last lines that were TOML and did not.
    """
    lines = text.splitlines(keepends=True)
    before = 0
    for end in range(1, min(len(lines), LONGEST_SEARCH) + 1):
        try:
            tree = tomllib.loads("".join(lines[:end]))
        except (ValueError, RecursionError):
            continue
        if _holds(tree, path):
            return before + 1, lines[before].find(path[-1]) + 1 or 1
        before = end
    return 1, 1


def _holds(tree: Any, path: Path) -> bool:
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def written(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of keys as TOML; a table inside one stands behind its keys."""
    return "\n".join(_table((name,), keys) for name, keys in tables.items())


def _table(path: Sequence[str], keys: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in keys.items() if not isinstance(value, Mapping)}
    inner = [(name, value) for name, value in keys.items() if isinstance(value, Mapping)]
    head = f"[{'.'.join(map(_name, path))}]\n"
    body = "".join(f"{_name(name)} = {value_text(value)}\n" for name, value in plain.items())
    return head + body + "".join("\n" + _table([*path, name], value) for name, value in inner)


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def value_text(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, Mapping):
        pairs = (f"{_name(name)} = {value_text(item)}" for name, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(value_text, value))}]"
    return repr(value)


def _text(text: str) -> str:
    """A text in quotes; what does not print is written as its number."""
    return f'"{"".join(map(_letter, text))}"'


def _letter(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"
