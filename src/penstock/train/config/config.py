"""Configuration files: TOML in, settings out, and back.

A mistake in a configuration should cost seconds, not a night: an unknown key is refused with the
nearest known one, a value of a wrong type with what is wanted, both with the line they stand on.
What was resolved can be written as a file that reads back to the same settings. Paths in a
configuration are relative to the folder that the command is started in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from penstock.errors import FormatError, PenstockError, ShapeError, nearest
from penstock.files import save as save_text
from penstock.train.config.document import Document
from penstock.train.config.keys import Key, keys_of, shown
from penstock.train.config.model_settings import ModelSettings
from penstock.train.config.overrides import parse_overrides
from penstock.train.config.settings import Settings
from penstock.train.config.toml import LARGEST_FILE, written

LOCAL = (("run", "threads"), ("log", "tensorboard"), ("log", "wandb"))
"""Keys that may differ between the processes of a run."""

SAVED = "config.toml"
"""File in a run's folder with all that was resolved."""


class Section(NamedTuple):
    """A table of the file: its keys, and the settings they make."""

    name: str
    keys: tuple[Key, ...]
    make: Callable[[Mapping[str, Any]], Any]
    values: Callable[[Any], Mapping[str, Any]]
    """The keys that make some settings, the other way round."""
    settings: type[Any]


def sections() -> tuple[Section, ...]:
    """Every section of a file, in the order of `Settings`."""
    hints = get_type_hints(Settings)
    return tuple(_section(field.name, hints[field.name]) for field in fields(Settings))


def _section(name: str, make: type[Any]) -> Section:
    if make is ModelSettings:
        return Section(name, ModelSettings.keys(), ModelSettings.of, ModelSettings.values, make)
    keys = keys_of(make)
    return Section(name, keys, lambda values: make(**values), partial(_values, keys), make)


def _values(keys: Sequence[Key], settings: Any) -> dict[str, Any]:
    return {key.name: getattr(settings, key.name) for key in keys}


def load(path: str | Path, overrides: Sequence[str] = ()) -> Settings:
    """The settings of a file, with changes written `section.key=value`."""
    path = Path(path)
    try:
        return loads(_text(path), overrides, name=path.stem)
    except FormatError as error:
        raise ShapeError(f"{path}, {error.message}", hint=error.hint) from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ShapeError(
                f"{path} is larger than {LARGEST_FILE:,} bytes", hint="this is no configuration"
            )
        return content.decode()
    except (OSError, ValueError) as error:  # text that is no UTF-8 is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise ShapeError(
            f"cannot read {str(path)!r}: {reason}", hint="give the path of a TOML file"
        ) from None


def loads(text: str, overrides: Sequence[str] = (), *, name: str = "") -> Settings:
    """The settings that a text says; the run's folder is called `name` unless it is named."""
    document = Document.of(text, parse_overrides(overrides))
    known = {section.name: section for section in sections()}
    for given in document.tree:
        if given not in known:
            raise document.fail(
                (given,), f"there is no section [{given[:40]}]", nearest(given[:40], [*known])
            )
    made = {section.name: _read(document, section, name) for section in known.values()}
    try:
        return Settings(**made)
    except ShapeError as error:
        raise document.blame(error) from None


def _read(document: Document, section: Section, name: str) -> Any:
    table = document.tree.get(section.name, {})
    if not isinstance(table, dict):
        raise document.fail(
            (section.name,), f"{section.name} is no table", f"write [{section.name}] above its keys"
        )
    values = {key: _value(document, section, key, value) for key, value in table.items()}
    if section.name == "run" and name:
        values.setdefault("directory", f"runs/{name}")
    missing = [key.name for key in section.keys if key.needed and key.name not in values]
    if missing:
        path = (section.name,) if section.name in document.tree else ()
        raise document.fail(
            path, f"[{section.name}] has no {', '.join(missing)}", _advice(section, missing[0])
        )
    try:
        return section.make(values)
    except ShapeError as error:
        raise document.blame(error, section.name) from None


def _advice(section: Section, name: str) -> str:
    text = next(key.text for key in section.keys if key.name == name)
    return f"{section.name}.{name} is needed: {text[:1].lower()}{text[1:]}"


def _value(document: Document, section: Section, name: str, given: Any) -> Any:
    """The value of a key, or an error that says what was given and what is wanted."""
    known = {key.name: key for key in section.keys}
    path = (section.name, name)
    if name not in known:
        raise document.fail(
            path, f"[{section.name}] has no key {shown(name)}", nearest(name[:40], [*known])
        )
    kind = known[name].kind
    value = document.settled(given, kind)
    if not kind.accepts(value):
        raise document.fail(path, f"{section.name}.{name} is {shown(value)}", f"give {kind.words}")
    try:
        return kind.take(value)
    except PenstockError as error:
        raise document.fail(path, f"{section.name}.{name}: {error.message}", error.hint) from None


def dump(settings: Settings) -> str:
    """The settings as a file with every key; `loads` makes the same settings of it."""
    return written(tables(settings))


def save(settings: Settings) -> Path:
    """Write the settings into the folder of their run, and say where."""
    path = Path(settings.run.directory) / SAVED
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ShapeError(
            f"cannot make {str(path.parent)!r}: {error.strerror}", hint="set run.directory"
        ) from None
    save_text(path, dump(settings))
    return path


def tables(settings: Settings) -> dict[str, dict[str, Any]]:
    """Section to key to value, as plain values; keys whose value is None are left out."""
    return {
        section.name: {
            key: _plain(value)
            for key, value in section.values(getattr(settings, section.name)).items()
            if value is not None
        }
        for section in sections()
    }


def _plain(value: Any) -> Any:
    """A record as a table without what is None."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {key: inner for key, inner in asdict(value).items() if inner is not None}


def agreed(settings: Settings) -> str:
    """All that the processes of a run must agree on, as a file."""
    return written(
        {
            name: {key: value for key, value in keys.items() if (name, key) not in LOCAL}
            for name, keys in tables(settings).items()
        }
    )


def fingerprint(settings: Settings) -> str:
    """A hash of all that the processes of a run must agree on."""
    return sha256(agreed(settings).encode()).hexdigest()
