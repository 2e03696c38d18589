"""TOML with places: what a text says, and where each key stands in it.

The standard library reads TOML and does not remember where anything stood. A place is needed for a
complaint only, so it is looked for then: one pass over a text that is known to be TOML.
"""

import re
import tomllib
from typing import Any, NamedTuple

from penstock.errors import FormatError

Path = tuple[str, ...]
"""Names of tables, and of the key in the last of them."""

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOKEN = re.compile(
    r'''\#[^\n]*
    |"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}|\'\'\'(?:[^']++|'{1,2}(?!'))*+'{3,5}
    |"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*'
    |[\[\]{}=,.\n]
    |[^\s"'\[\]{}=,.\#]+''',
    re.VERBOSE | re.DOTALL,
)
"""A comment, a text, a mark or a bare word; blanks are passed over."""


DEEPEST = 32
"""Tables and lists inside each other; a configuration needs 3."""
MOST_VALUES = 50_000

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"|\'[^\']*\'|#.*')
_BETWEEN_NAMES = re.compile(r"[=,{}\[\]]")


def parse(text: str) -> dict[str, Any]:
    """The tables of a text, or an error with its place."""
    _refuse_long_names(text)
    tree = _parsed(text)
    _refuse_large(tree)
    return tree


def _refuse_long_names(text: str) -> None:
    """The standard library takes minutes for a name of many parts, so they are counted before."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > DEEPEST:
            names = _BETWEEN_NAMES.split(_QUOTED.sub("", line))
            if max(name.count(".") for name in names) > DEEPEST:
                raise too_deep(number)


def _refuse_large(tree: dict[str, Any]) -> None:
    """Refuse more values than a configuration can have, before each of them is looked at."""
    level: list[Any] = [tree]
    for _ in range(DEEPEST):
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        values = [value for group in inner for value in group]
        if len(values) > MOST_VALUES:
            raise FormatError(
                f"there are more than {MOST_VALUES:,} values",
                hint="give a configuration; many files can be named by a pattern",
            )
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise too_deep()


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        message = str(error)
        found = _PLACE.search(message)
        line, column = map(int, found.groups()) if found and found[1] else line_of(text, len(text))
        reason = message[: found.start()] if found else message
        raise FormatError(
            f"this is not TOML: {reason}",
            line=line,
            column=column,
            hint='write key = value; strings are in "quotes"',
        ) from None


def too_deep(line: int = 1) -> FormatError:
    return FormatError("tables or lists are nested too deeply", line=line, hint="use fewer")


def line_of(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a letter, from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def places(text: str) -> dict[Path, int]:
    """Every key and table of a TOML text, and the offset of the first letter of its name."""
    reader = _Reader()
    for token in _TOKEN.finditer(text):
        if not token[0].startswith("#"):
            reader.read(token[0], token.start())
    return reader.found


class _Bracket(NamedTuple):
    """A list or table that was opened in a value."""

    table: bool
    path: Path


class _Reader:
    """Follows the tokens of a text: a name is a key where no value is expected."""

    def __init__(self) -> None:
        self.found: dict[Path, int] = {}
        self.table: Path = ()
        self.path: Path = ()
        self.open: list[_Bracket] = []
        self.names: list[tuple[str, int]] = []
        self.in_value = False

    def read(self, token: str, offset: int) -> None:
        if self.in_value:
            self._value(token)
        elif token in ("=", "]") and self.names:
            self._key(token)
        elif token == "}":
            self.open.pop()
            self.in_value = True
        elif token not in "[].\n,":
            self.names.append(_name(token, offset))

    def _key(self, token: str) -> None:
        """The end of a key or of the head of a table: its names are known."""
        self.path = () if token == "]" else self.open[-1].path if self.open else self.table
        for name, offset in self.names:
            self.path += (name,)
            self.found.setdefault(self.path, offset)
        self.names.clear()
        self.in_value = token == "="
        self.table = self.path if token == "]" else self.table

    def _value(self, token: str) -> None:
        if token in ("[", "{"):
            inside = self.open and not self.open[-1].table
            self.open.append(_Bracket(token == "{", self.open[-1].path if inside else self.path))
        elif token in ("]", "}"):
            self.open.pop()
        in_table = bool(self.open) and self.open[-1].table
        ended = token in ("{", ",") if in_table else token == "\n" and not self.open
        self.in_value = not ended


def _name(token: str, offset: int) -> tuple[str, int]:
    """The name that a token says, and where its first letter stands."""
    if token[0] not in "\"'":
        return token, offset
    return next(iter(tomllib.loads(f"{token} = 0"))), offset + 1
