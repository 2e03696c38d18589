"""A configuration as it was written: a file, changed on the command line, and where each key is.

Whoever refuses a value knows its section and key, not where it came from. The document does, and
words the complaint: with line and column for a key of the file, with its `--set` for a change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from re import search
from typing import Any

from penstock.errors import FormatError, ShapeError
from penstock.train.config.compounds import Either, Named
from penstock.train.config.keys import Record, keys_of
from penstock.train.config.kinds import Kind
from penstock.train.config.overrides import Bare, Override, apply
from penstock.train.config.toml import Path, parse, place


@dataclass(frozen=True)
class Document:
    """Tables of a file with the changes made in them."""

    text: str
    tree: dict[str, Any]
    overrides: tuple[Override, ...]

    @classmethod
    def of(cls, text: str, overrides: Sequence[Override]) -> "Document":
        return cls(text, apply(parse(text), overrides), tuple(overrides))

    def fail(self, path: Path, message: str, hint: str) -> ShapeError | FormatError:
        """A complaint about what stands at a path, with its place."""
        for override in reversed(self.overrides):
            if override.path[: len(path)] == path:
                return ShapeError(f"--set {override.written!r}: {message}", hint=hint)
        line, column = place(self.text, path) if path else (1, 1)
        return FormatError(message, line=line, column=column, hint=hint)

    def blame(self, error: ShapeError, section: str = "") -> ShapeError | FormatError:
        """The refusal of values that do not fit together, placed at the first one that it names."""
        table = f"[{section}] " if section and f"{section}." not in error.message else ""
        return self.fail(self._named(error.message, section), table + error.message, error.hint)

    def _named(self, message: str, section: str) -> Path:
        """Path of the given key that stands first in a message; the section where none does."""
        found = [
            (match.start(), (name, key))
            for name, keys in self.tree.items()
            if isinstance(keys, dict) and section in ("", name)
            for key in keys
            if (match := search(rf"(?<![\w.]){_words(name, key, section)}\b", message))
        ]
        return min(found)[1] if found else (section,) if section in self.tree else ()

    def settled(self, value: Any, kind: Kind) -> Any:
        """A value with what came from the command line read as what its key takes."""
        if isinstance(value, Bare):
            return value.as_kind(kind)
        if not isinstance(value, Mapping):
            return value
        return {name: self.settled(inner, _inside(kind, name)) for name, inner in value.items()}


def _words(section: str, key: str, of: str) -> str:
    """A key as a message names it: alone where its section is known, with it otherwise."""
    return rf"(?:{section}\.)?{key}" if of else rf"{section}\.{key}"


def _inside(kind: Kind, name: str) -> Kind:
    """The kind of what stands in a table under a name; of an unknown name, whatever is given."""
    if isinstance(kind, Named):
        return kind.item
    known = keys_of(kind.make) if isinstance(kind, Record) else ()
    return next((key.kind for key in known if key.name == name), Either(()))
