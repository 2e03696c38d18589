"""Configuration files and changes of them, read into settings.

A mistake in a configuration should cost seconds, not a night: an unknown key is refused with the
nearest known one, a value of a wrong type with what is wanted, both with the line they stand on.
Paths in a configuration are relative to the folder that the command is started in.
"""

from collections.abc import Sequence
from pathlib import Path as File
from typing import Any

from pydantic import ValidationError

from penstock.errors import FormatError, ShapeError, shown
from penstock.files.toml_places import Path, parse, too_deep
from penstock.train.config.auto_plan import CHOSEN
from penstock.train.config.document import Document
from penstock.train.config.errors import complaint, mistakes
from penstock.train.config.overrides import Tables, apply_overrides, parse_overrides
from penstock.train.config.settings import Settings
from penstock.train.config.units import with_numbers

LARGEST_FILE = 1_000_000
"""Bytes above which a text is no configuration."""
LARGEST = 2**63 - 1
"""Whole numbers end where TOML's end."""

_UNFIT = object()
"""What no key takes."""


def load(path: str | File, overrides: Sequence[str] = ()) -> Settings:
    """The settings of a file, with changes written `section.key=value`."""
    path = File(path)
    try:
        return _read(_text(path), overrides, path.stem, str(path))
    except FormatError as error:
        raise ShapeError(f"{path}, {error.message}", hint=error.hint) from None


def loads(text: str, overrides: Sequence[str] = (), *, name: str = "") -> Settings:
    """The settings that a text says; the run's folder is called `name` unless it is named."""
    return _read(text, overrides, name, "")


def _text(path: File) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) <= LARGEST_FILE:
            return content.decode()
    except (OSError, ValueError) as error:  # text that is no UTF-8 is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise ShapeError(
            f"cannot read {shown(str(path), 300)}: {reason}", hint="give the path of a TOML file"
        ) from None
    raise ShapeError(
        f"{path} is larger than {LARGEST_FILE:,} bytes", hint="give a configuration file"
    )


def _read(text: str, overrides: Sequence[str], name: str, file: str) -> Settings:
    changes = parse_overrides(overrides)
    try:
        tables = _whole(apply_overrides(parse(text), changes, _wrong), name)
        return Settings.model_validate(prepare(with_numbers(tables)))
    except ValidationError as error:
        raise complaint(error, Document(text, tables, changes, file)) from None
    except RecursionError:
        raise too_deep() from None


def _wrong(tables: Tables) -> set[Path]:
    """Keys whose values are refused."""
    try:
        Settings.model_validate(prepare(with_numbers(_whole(tables, ""))))
    except ValidationError as error:
        return {mistake.path for mistake in mistakes(error)}
    return set()


def _whole(tables: Tables, name: str) -> Tables:
    """The tables with those that were left out, with the name of the run's folder, and with a
    schedule that is to be chosen where the plan is."""
    whole: Tables = {section: {} for section in Settings.model_fields} | tables
    if name and isinstance(whole["run"], dict):
        whole["run"] = {"directory": f"runs/{name}"} | whole["run"]
    plan, pipeline = whole["plan"], whole["pipeline"]
    if isinstance(plan, dict) and isinstance(pipeline, dict) and plan.get("auto") is True:
        whole["pipeline"] = {"schedule": CHOSEN} | pipeline
    return whole


def prepare(value: Any) -> Any:
    """A value as the models take it: lists as tuples, and nothing that a file cannot hold."""
    match value:
        case dict():
            return {name: prepare(inner) for name, inner in value.items()}
        case list():
            return tuple(map(prepare, value))
        case int():
            return value if abs(value) <= LARGEST else _UNFIT
        case str():  # what is not Unicode (a path of raw bytes) cannot be written
            return value if value.isascii() or _is_unicode(value) else _UNFIT
    return value


def _is_unicode(text: str) -> bool:
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)
