"""Changes of a configuration on the command line: `section.key=value`.

A value is read as TOML, so that numbers, lists and tables mean what they mean in a file; but nobody
wants to quote a word twice for the shell, so a value that is not TOML, or not of the type that its
key takes, stands for its own letters.
"""

import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.errors import ShapeError
from penstock.train.config.kinds import Kind
from penstock.train.config.toml import Path


class Bare(NamedTuple):
    """A value from the command line: its letters, and what they say as TOML."""

    letters: str
    parsed: Any

    def as_kind(self, kind: Kind) -> Any:
        """What a key of this kind gets; what does not fit is left for the key to refuse."""
        letters_fit = not kind.accepts(self.parsed) and kind.accepts(self.letters)
        return self.letters if letters_fit else self.parsed


class Override(NamedTuple):
    """One change, and how it was written."""

    path: Path
    value: Bare
    written: str


def parse_overrides(texts: Sequence[str]) -> tuple[Override, ...]:
    """The changes that these texts say, each `section.key=value`."""
    return tuple(map(_parse, texts))


def _parse(text: str) -> Override:
    name, equals, letters = text.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    if not equals or len(path) < 2 or not all(path):
        raise ShapeError(
            f"--set {text!r} names no value of a section",
            hint="write section.key=value, for example run.steps=200",
        )
    return Override(path, Bare(letters, _toml(letters)), text)


def _toml(letters: str) -> Any:
    """What the letters say as one TOML value, or the letters themselves."""
    try:
        tree = tomllib.loads(f"value = {letters}")
    except (ValueError, RecursionError):
        return letters
    return tree["value"] if tree.keys() == {"value"} else letters


def apply(tree: dict[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """The tables with the changes made; tables on the way are created, and the last change wins."""
    for override in overrides:
        tree = _with(tree, override.path, override)
    return tree


def _with(tree: dict[str, Any], path: Path, override: Override) -> dict[str, Any]:
    name, *rest = path
    if not rest:
        return {**tree, name: override.value}
    inner = tree.get(name, {})
    inner = inner.parsed if isinstance(inner, Bare) else inner
    if not isinstance(inner, dict):
        raise ShapeError(
            f"--set {override.written!r}: {name!r} is no table, so it has no key {rest[0]!r}",
            hint="name a section and a key of it",
        )
    return {**tree, name: _with(inner, tuple(rest), override)}
