"""What is wrong with a configuration, in words, with its place.

Pydantic knows which values are wrong. A user wants to know where they came from (a line and column
of the file, or a `--set`), what was given, what is wanted, and which key was meant by a misspelt
one. Several mistakes are told at once, in the order of the file.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from penstock.errors import ShapeError, nearest, shown
from penstock.files.toml_places import Path
from penstock.train.config.document import Document
from penstock.train.config.schema import Schema, schema, type_words

LONGEST_NAME = 40
MOST_TOLD = 10
"""Mistakes that are told at once; a file with more of them is of another kind."""
MOVED: Mapping[Path, Path] = {("pipeline", "replicas"): ("mesh", "replicas")}
"""Keys that have another place now."""


class Mistake(NamedTuple):
    """A key, its table or the whole configuration, and what pydantic says against it."""

    path: Path
    kind: str
    takes: Schema
    """What the key takes; where it is unknown, the table around it."""
    misfit: ShapeError | None

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def unknown(self) -> bool:
        return self.kind in ("extra_forbidden", "unexpected_keyword_argument")

    @property
    def above(self) -> set[Path]:
        """The tables around the key."""
        return {self.path[:depth] for depth in range(len(self.path))}

    @property
    def missing(self) -> bool:
        return self.kind == "missing"


def mistakes(error: ValidationError) -> list[Mistake]:
    """What is wrong, once for each key; a misspelt key explains one that is missing beside it."""
    found: dict[Path, Mistake] = {}
    for detail in error.errors(include_url=False, include_input=False):
        mistake = _mistake(detail)
        found.setdefault(mistake.path, mistake)
    misspelt = {each.path[:-1] for each in found.values() if each.unknown}
    return [each for each in found.values() if not (each.missing and each.above & misspelt)]


def _mistake(detail: ErrorDetails) -> Mistake:
    """What pydantic found inside a value, in an item or an alternative, is a mistake of its key."""
    path: Path = ()
    takes = schema()
    for name in detail["loc"]:
        inner = takes.get("properties", {}).get(name) or takes.get("additionalProperties")
        if not inner:
            break
        path, takes = (*path, str(name)), inner
    whole = tuple(map(str, detail["loc"]))
    found = Mistake(whole, detail["type"], takes, detail.get("ctx", {}).get("error"))
    return found if found.unknown or whole == path else found._replace(path=path, kind="inside")


def complaint(error: ValidationError, document: Document) -> ShapeError:
    """Everything that is wrong with a configuration, as one error."""
    placed = [(_blamed(mistake, document), mistake) for mistake in mistakes(error)]
    placed.sort(key=lambda pair: document.order(pair[0]))
    told = [(document.place(path), *_worded(each, document)) for path, each in placed[:MOST_TOLD]]
    if len(placed) == 1:
        ((place, message, hint),) = told
        file = f"{document.file}, " if document.file and place.startswith("line") else ""
        return ShapeError(f"{file}{place}: {message}", hint=hint)
    lines = [f"  {place}: {message}; {hint}" for place, message, hint in told]
    more = [f"  and {len(placed) - MOST_TOLD} more"] if len(placed) > MOST_TOLD else []
    head = f"{document.file or 'the configuration'} has {len(placed)} mistakes"
    return ShapeError("\n".join([head, *lines, *more]))


def _blamed(mistake: Mistake, document: Document) -> Path:
    """The key to look at: of values that do not fit together, the first that is named."""
    if mistake.missing:
        return mistake.path[:-1]
    if mistake.misfit and len(mistake.path) < 2:
        return document.named(mistake.misfit.message, *mistake.path)
    return mistake.path


def _worded(mistake: Mistake, document: Document) -> tuple[str, str]:
    """What is wrong, and what to do about it."""
    key = ".".join(mistake.path)
    if mistake.misfit:
        return _misfit(mistake.misfit.message, mistake.path), mistake.misfit.hint
    if mistake.missing:
        text = mistake.takes["description"]
        return (
            f"{_table(mistake)} has no {mistake.name}",
            f"{key} is needed: {text[0].lower()}{text[1:]}",
        )
    if mistake.unknown:
        return _unknown(mistake), _known(mistake)
    if len(mistake.path) == 1:
        return f"{key} is not a table", f"write [{key}] above its keys"
    value = document.value(mistake.path)
    return (
        f"{key} is {shown(value)}",
        f"give {type_words(mistake.takes)}{_meant(value, mistake.takes)}",
    )


def _table(mistake: Mistake) -> str:
    return f"[{'.'.join(mistake.path[:-1])}]"


def _unknown(mistake: Mistake) -> str:
    if len(mistake.path) == 1:
        return f"there is no section [{mistake.name[:LONGEST_NAME]}]"
    return f"{_table(mistake)} has no key {shown(mistake.name)}"


def _known(mistake: Mistake) -> str:
    """Where a key has gone, or the nearest one that there is."""
    if mistake.path in MOVED:
        return f"it has moved to {'.'.join(MOVED[mistake.path])}"
    return nearest(mistake.name[:LONGEST_NAME], [*mistake.takes["properties"]])


def _meant(value: Any, takes: Schema) -> str:
    """The nearest of a few words, where there is one."""
    found = nearest(str(value)[:LONGEST_NAME], takes.get("enum", ()))
    return f"; {found}" if found.startswith("did") else ""


def _misfit(message: str, path: Path) -> str:
    """A refusal with the table it is about, unless it names the table itself."""
    if len(path) > 1:
        return f"{'.'.join(path)}: {message}"
    return f"[{path[0]}] {message}" if path and f"{path[0]}." not in message else message
