"""A configuration as it was written, and where each of its keys came from.

Whoever refuses a value knows its path, not its origin. The document does: the line and column of a
key of the file, and for a change the `--set` that made it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from re import findall
from typing import Any

from penstock.errors import shown
from penstock.files.toml_places import Path, line_of, places
from penstock.train.config.overrides import Override, Tables


@dataclass(frozen=True)
class Document:
    """A configuration as it was written: a file, and the changes made to it."""

    text: str
    tables: Tables
    """What the file says, with the changes made."""
    overrides: Sequence[Override] = ()
    file: str = ""

    @cached_property
    def offsets(self) -> dict[Path, int]:
        return places(self.text)

    def origin(self, path: Path) -> Override | int:
        """Where a key came from: the last change of it, or else an offset in the text."""
        changes = [each for each in self.overrides if path and each.meets(path)]
        return changes[-1] if changes else self.offsets.get(path, 0)

    def order(self, path: Path) -> int:
        """Mistakes are told in this order: those of the command line, then down the file."""
        origin = self.origin(path)
        return origin if isinstance(origin, int) else -1

    def place(self, path: Path) -> str:
        origin = self.origin(path)
        if not isinstance(origin, int):
            return f"--set {shown(origin.written)}"
        line, column = line_of(self.text, origin)
        return f"line {line}, column {column}"

    def named(self, message: str, section: str = "") -> Path:
        """Path of the given key that stands first in a message; the section where none does."""
        for word in findall(r"[\w.]+", message):
            name, _, key = word.rpartition(".")
            keys = self.tables.get(name or section)
            if isinstance(keys, dict) and key in keys:
                return name or section, key
        return (section,) if section else ()

    def value(self, path: Path) -> Any:
        found: Any = self.tables
        for name in path:
            found = found[name]
        return found
