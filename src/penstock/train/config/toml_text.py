"""Values and tables written as TOML, which the standard library reads but does not write."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


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
