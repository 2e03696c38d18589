"""The keys of a table of the configuration, read off a dataclass.

A key is described once: its name, type and default are a field, its range stands in the type, its
meaning is the text below it. Reading a file, the schema for editors and the reference page follow.
"""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
from textwrap import dedent
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from penstock.errors import ShapeError
from penstock.train.config.compounds import Either, Many, Named
from penstock.train.config.kinds import Choice, Kind, Number, Switch, Text, Whole

LONGEST_SHOWN = 80
"""Characters of a value that an error repeats."""


class Key(NamedTuple):
    """One key: what it takes, what it is when left out, what it means."""

    name: str
    kind: Kind
    default: Any
    """MISSING where the key must be given; None where leaving it out is a value of its own."""
    text: str

    @property
    def needed(self) -> bool:
        return self.default is MISSING

    def holds(self, value: Any) -> bool:
        """Whether a field may hold this value."""
        return self.kind.accepts(value) or (value is None and self.default is None)


@dataclass(frozen=True)
class Record:
    """A table with the keys of a dataclass."""

    make: type[Any]

    @property
    def words(self) -> str:
        parts = (f"{key.name} ({key.kind.words})" for key in keys_of(self.make))
        return f"a table with {', '.join(parts)}"

    def accepts(self, value: Any) -> bool:
        if isinstance(value, self.make):
            return True
        known = {key.name: key for key in keys_of(self.make)}
        return (
            isinstance(value, dict)
            and all(name in known and known[name].kind.accepts(value[name]) for name in value)
            and all(name in value for name, key in known.items() if key.needed)
        )

    def take(self, value: Any) -> Any:
        if isinstance(value, self.make):
            return value
        kinds = {key.name: key.kind for key in keys_of(self.make)}
        return self.make(**{name: kinds[name].take(item) for name, item in value.items()})

    def schema(self) -> dict[str, Any]:
        return table_schema(keys_of(self.make))


def keys_of(make: Any) -> tuple[Key, ...]:
    """The keys of a dataclass, in its order."""
    return _keys_of(make)


@cache
def _keys_of(make: Any) -> tuple[Key, ...]:
    hints, texts = get_type_hints(make, include_extras=True), notes_of(make)
    return tuple(
        Key(field.name, kind_of(hints[field.name]), _default(field), texts.get(field.name, ""))
        for field in fields(make)
        if field.init
    )


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def notes_of(make: type[Any]) -> dict[str, str]:
    """The text below each field of a class, on one line; none where there is no source to read."""
    try:
        tree = ast.parse(dedent(inspect.getsource(make)))
    except OSError:
        return {}
    statements = [inner for node in tree.body for inner in getattr(node, "body", ())]
    notes: dict[str, str] = {}
    for field, below in pairwise(statements):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                notes[name] = " ".join(text.split())
    return notes


def table_schema(keys: tuple[Key, ...]) -> dict[str, Any]:
    """JSON schema of a table with these keys and no others."""
    properties = {key.name: _key_schema(key) for key in keys}
    needed = [key.name for key in keys if key.needed]
    return {
        "type": "object",
        "properties": properties,
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }


def _key_schema(key: Key) -> dict[str, Any]:
    text = {"description": key.text} if key.text else {}
    default = list(key.default) if isinstance(key.default, tuple) else key.default
    known = {} if key.needed or key.default is None else {"default": default}
    return {**text, **key.kind.schema(), **known}


def refuse_wrong(settings: Any) -> None:
    """Refuse a field that holds what its key does not take; for `__post_init__`."""
    for key in keys_of(type(settings)):
        value = getattr(settings, key.name)
        if not key.holds(value):
            raise ShapeError(f"{key.name} is {shown(value)}", hint=f"give {key.kind.words}")


def shown(value: Any) -> str:
    """A value as an error shows it, never longer than a line."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def kind_of(hint: Any) -> Kind:
    """The kind of a type hint; None in a union is a key left out, and no kind of its own.

    >>> from penstock.train.config.kinds import Range
    >>> kind_of(Annotated[int, Range(least=1)] | Literal["all"]).words
    'a whole number of 1 or more or "all"'
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _ranged(*arguments)
    if origin in (Union, UnionType):
        kinds = tuple(kind_of(inner) for inner in arguments if inner is not type(None))
        return kinds[0] if len(kinds) == 1 else Either(kinds)
    if origin is Literal:
        return Choice(arguments)
    if origin is tuple:
        several = arguments[-1] is Ellipsis
        return Many(kind_of(arguments[0]), None if several else len(arguments))
    if origin in (dict, Mapping):
        return Named(kind_of(arguments[1]))
    return _plain(hint)


def _plain(hint: Any) -> Kind:
    plain: dict[Any, Kind] = {int: Whole(), float: Number(), str: Text(), bool: Switch()}
    return plain[hint] if hint in plain else Record(hint)


def _ranged(hint: Any, *notes: Any) -> Kind:
    """The kind of a number with a range beside it."""
    (range,) = notes
    return Whole(range) if hint is int else Number(range)
