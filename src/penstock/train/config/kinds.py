"""What a value of the configuration may be, read off the type of a field.

A file, a command line, an editor and a reader of the pages all ask the same of a key: which values
does it take? So a type hint becomes a kind, which tells a fitting value from another, says in words
what it wants and writes itself as JSON schema.

    int, float, str, bool, Literal["a", "b"], Annotated[int, Range(least=1)]    here
    tuple[A, ...], Mapping[str, A], A | B                                       compounds.py
    a dataclass                                                                 keys.py
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

LARGEST = 2**63 - 1
"""Whole numbers end where TOML's end."""


@dataclass(frozen=True)
class Range:
    """Bounds of a number, written beside its type."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    @property
    def words(self) -> str:
        """The bounds as the end of a sentence, as in ` of 1 or more`."""
        parts = [
            "" if self.least is None else f" of {self.least:g} or more",
            "" if self.above is None else f" above {self.above:g}",
            "" if self.most is None else f" at most {self.most:g}",
            "" if self.below is None else f" below {self.below:g}",
        ]
        return " and".join(filter(None, parts))

    def schema(self) -> dict[str, Any]:
        bounds = {
            "minimum": self.least,
            "exclusiveMinimum": self.above,
            "maximum": self.most,
            "exclusiveMaximum": self.below,
        }
        return {name: bound for name, bound in bounds.items() if bound is not None}


class Kind(Protocol):
    """The values that a key takes."""

    @property
    def words(self) -> str:
        """What is wanted, as in `a whole number of 1 or more`."""
        ...

    def accepts(self, value: Any) -> bool: ...

    def take(self, value: Any) -> Any:
        """An accepted value as the field holds it."""
        ...

    def schema(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Whole:
    """A whole number; `true` is none."""

    range: Range = Range()

    @property
    def words(self) -> str:
        return f"a whole number{self.range.words}"

    def accepts(self, value: Any) -> bool:
        return type(value) is int and abs(value) <= LARGEST and self.range.holds(value)

    def take(self, value: Any) -> int:
        return int(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", **self.range.schema()}


@dataclass(frozen=True)
class Number:
    """A finite number, whole or not."""

    range: Range = Range()

    @property
    def words(self) -> str:
        return f"a number{self.range.words}"

    def accepts(self, value: Any) -> bool:
        whole = type(value) is int and abs(value) <= LARGEST
        finite = type(value) is float and math.isfinite(value)
        return (whole or finite) and self.range.holds(value)

    def take(self, value: Any) -> float:
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", **self.range.schema()}


@dataclass(frozen=True)
class Text:
    """A text that a file can hold: what is not Unicode (a path of raw bytes) cannot be written."""

    words: str = "a text"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and not any(0xD800 <= ord(c) <= 0xDFFF for c in value)

    def take(self, value: Any) -> str:
        return str(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True)
class Switch:
    """Yes or no."""

    words: str = "true or false"

    def accepts(self, value: Any) -> bool:
        return type(value) is bool

    def take(self, value: Any) -> bool:
        return bool(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    names: tuple[str, ...]

    @property
    def words(self) -> str:
        *first, last = (f'"{name}"' for name in self.names)
        return " or ".join(filter(None, (", ".join(first), last)))

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.names

    def take(self, value: Any) -> str:
        return str(value)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names)}
