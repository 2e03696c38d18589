"""Schedules in files: text lanes for people, JSON for programs, PyTorch's CSV for exchange.

A file is recognised by what stands in it, because names of files lie; its ending only decides
where the content does not. Everything that is wrong with a file ends in an error with a line, a
column and a hint.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from penstock.core.schedule import Schedule
from penstock.core.shape import MAX_OPS
from penstock.errors import FormatError, ShapeError, shown
from penstock.files import json, text, torch_csv
from penstock.files.durable import write_file

__all__ = ["FORMATS", "MAX_BYTES", "Format", "load", "load_stream", "loads", "save", "save_text"]

MAX_BYTES = 16 * MAX_OPS
"""Files above this cannot hold a schedule of the size we accept."""


_LONGEST_PATH = 300
"""Letters of a path that an error repeats."""


class Format(NamedTuple):
    """One way to write a schedule down."""

    title: str
    suffix: str
    loads: Callable[[str, str], Schedule]
    dumps: Callable[[Schedule], str]


FORMATS = {
    "text": Format("text lanes", ".txt", text.loads, text.dumps),
    "json": Format("JSON", ".json", json.loads, json.dumps),
    "csv": Format("PyTorch's CSV of actions", ".csv", torch_csv.loads, torch_csv.dumps),
}


def load(path: str | Path) -> Schedule:
    """The schedule in a file; a file that does not name it lends its own name."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:  # a file with holes would be read for long
            raise _too_large(shown(str(path), _LONGEST_PATH))
        with path.open("rb") as file:
            content = _text(file, shown(str(path), _LONGEST_PATH))
    except (OSError, ValueError) as error:
        raise ShapeError(
            f"cannot read {shown(str(path), _LONGEST_PATH)}: {_reason(error)}",
            hint="give the path of a schedule file",
        ) from None
    name = path.stem.strip() if path.stem.isprintable() else ""
    return loads(content, name, path.suffix)


def load_stream(stream: BinaryIO, name: str) -> Schedule:
    """The schedule in a stream that is open, as stdin is; errors call it by this name."""
    return loads(_text(stream, name))


def _text(file: BinaryIO, name: str) -> str:
    """What a file holds, unless it cannot be a schedule: nobody knows how much there is to read."""
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _too_large(name)
    return _decode(content)


def _too_large(name: str) -> ShapeError:
    return ShapeError(
        f"{name} is larger than {MAX_BYTES:,} bytes",
        hint=f"a schedule has at most {MAX_OPS:,} ops",
    )


def loads(content: str, name: str = "", suffix: str = "") -> Schedule:
    """The schedule that a text in any of the formats says."""
    return _recognise(content, suffix).loads(content, name)


def save(schedule: Schedule, path: str | Path) -> None:
    """Write a schedule to a file, in the format that the ending of its name says."""
    suffix = Path(path).suffix
    for known in FORMATS.values():
        if known.suffix == suffix:
            return save_text(path, known.dumps(schedule))
    endings = ", ".join(f"{known.suffix} ({known.title})" for known in FORMATS.values())
    raise ShapeError(
        f"the ending {shown(suffix)} of {shown(str(path), _LONGEST_PATH)} is that of no format",
        hint=f"give a path that ends in one of: {endings}",
    )


def save_text(path: str | Path, content: str) -> None:
    """Write a text file so that nobody ever sees half of it."""
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            target.write_bytes(content.encode())  # a device or a pipe has no name to be renamed to
        else:
            write_file(target, content.encode())
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise ShapeError(
            f"cannot write {shown(str(path), _LONGEST_PATH)}: {_reason(error)}",
            hint="give a path that can be written",
        ) from None


def _reason(error: Exception) -> str:
    """What the system says, without its numbers and without the path a second time."""
    return getattr(error, "strerror", None) or str(error)


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        raise FormatError(
            f"byte {content[error.start]:#04x} is not UTF-8",
            line=before.count(b"\n") + 1,
            column=error.start - before.rfind(b"\n"),
            hint="save the file as UTF-8 text",
        ) from None


def _recognise(content: str, suffix: str) -> Format:
    """The format of a text, by its first line that is not blank."""
    match = re.search(r"\S[^\n]*", content)
    first = match[0] if match else ""
    if first[:1] in ("{", "["):
        return FORMATS["json"]
    if first.startswith("#") or ":" in first:
        return FORMATS["text"]
    if "," in first or re.match(r"\(|[0-9]+[A-Z]", first):
        return FORMATS["csv"]
    for known in FORMATS.values():
        if known.suffix == suffix:
            return known
    titles = ", ".join(known.title for known in FORMATS.values())
    raise FormatError(
        f"{first[:40]!r} does not start a schedule" if first else "the file is empty",
        line=content.count("\n", 0, match.start()) + 1 if match else 1,
        hint=f"a schedule file is one of: {titles}",
    )
