"""Changes of a configuration on the command line: `section.key=value`.

A value is read as TOML, so that numbers, lists and tables mean what they mean in a file; but nobody
wants to quote a word twice for the shell, so a value that is not TOML, or not of the type that its
key takes, stands for its own letters.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from penstock.errors import FormatError, ShapeError, shown
from penstock.files.toml_places import DEEPEST, Path, parse

Tables = dict[str, Any]


class Override(NamedTuple):
    """One change: what it says as TOML, its letters, and how it was written."""

    path: Path
    value: Any
    letters: str
    written: str

    def spelled(self) -> "Override":
        """The same change by its letters; a table in braces is meant as one."""
        return self if isinstance(self.value, dict) else self._replace(value=self.letters)

    def meets(self, path: Path) -> bool:
        """Whether one of the two stands in the other."""
        return all(mine == other for mine, other in zip(self.path, path))

    def touches(self, paths: Iterable[Path]) -> bool:
        """Whether one of these stands in what was set here."""
        return any(path[: len(self.path)] == self.path for path in paths)


def parse_overrides(texts: Sequence[str]) -> tuple[Override, ...]:
    """The changes that these texts say, each `section.key=value`."""
    return tuple(map(_parse, texts))


def _parse(text: str) -> Override:
    name, equals, letters = text.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    if not equals or len(path) < 2 or not all(path):
        raise ShapeError(
            f"--set {shown(text)} names no value of a section",
            hint="write section.key=value, for example run.steps=200",
        )
    if len(path) > DEEPEST:
        raise ShapeError(f"--set {shown(text)} names {len(path):,} tables", hint="name a section")
    return Override(path, _toml(letters), letters, text)


def _toml(letters: str) -> Any:
    """What the letters say as one TOML value, or the letters themselves."""
    try:
        tree = parse(f"value = {letters}")
    except FormatError:
        return letters
    return tree["value"] if tree.keys() == {"value"} else letters


def apply_overrides(
    tables: Tables, overrides: Sequence[Override], wrong: Callable[[Tables], Collection[Path]]
) -> Tables:
    """The tables with the changes made: as TOML, or as letters where only these are not wrong."""
    refused = wrong(apply(tables, overrides)) if overrides else ()
    spelled = [each.spelled() if each.touches(refused) else each for each in overrides]
    still = wrong(apply(tables, spelled)) if refused else ()
    chosen = (toml if text.touches(still) else text for toml, text in zip(overrides, spelled))
    return apply(tables, chosen)


def apply(tables: Tables, overrides: Iterable[Override]) -> Tables:
    """The tables with the changes made; tables on the way are created, and the last change wins."""
    for override in overrides:
        tables = _with(tables, override.path, override)
    return tables


def _with(tables: Tables, path: Path, override: Override) -> Tables:
    name, *rest = path
    if not rest:
        return {**tables, name: override.value}
    inner = tables.get(name, {})
    if not isinstance(inner, dict):
        raise ShapeError(
            f"--set {shown(override.written)}: {shown(name)} is not a table, so it has no key "
            f"{shown(rest[0])}",
            hint="name a section and a key of it",
        )
    return {**tables, name: _with(inner, tuple(rest), override)}
