"""Kinds made of kinds: lists, tables under free names, and a choice between kinds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.train.config.kinds import Kind, Text


@dataclass(frozen=True)
class Many:
    """A list of values of one kind; `count` says how many, where that is fixed."""

    item: Kind
    count: int | None = None

    @property
    def words(self) -> str:
        size = "a list" if self.count is None else f"a list of {self.count}"
        return f"{size}, each item {self.item.words}"

    def accepts(self, value: Any) -> bool:
        fits = isinstance(value, list | tuple) and self.count in (None, len(value))
        return fits and all(map(self.item.accepts, value))

    def take(self, value: Any) -> tuple[Any, ...]:
        return tuple(map(self.item.take, value))

    def schema(self) -> dict[str, Any]:
        size = {} if self.count is None else {"minItems": self.count, "maxItems": self.count}
        return {"type": "array", "items": self.item.schema(), **size}


@dataclass(frozen=True)
class Named:
    """A table of values of one kind under names of the user's choice."""

    item: Kind

    @property
    def words(self) -> str:
        return f"a table, each value {self.item.words}"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            Text().accepts(key) and self.item.accepts(item) for key, item in value.items()
        )

    def take(self, value: Any) -> dict[str, Any]:
        return {key: self.item.take(item) for key, item in value.items()}

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.item.schema()}


@dataclass(frozen=True)
class Either:
    """A value of one of several kinds; the first that fits takes it."""

    kinds: tuple[Kind, ...]

    @property
    def words(self) -> str:
        return " or ".join(kind.words for kind in self.kinds)

    def accepts(self, value: Any) -> bool:
        return any(kind.accepts(value) for kind in self.kinds)

    def take(self, value: Any) -> Any:
        return next(kind for kind in self.kinds if kind.accepts(value)).take(value)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [kind.schema() for kind in self.kinds]}
