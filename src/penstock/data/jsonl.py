"""Documents from lines of JSON: one object per line, the text in one of its fields.

A line that cannot be read is refused with its place, never passed over: what is left out in silence
is missed much too late.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.data._digest import digest, digest_file, unreadable
from penstock.data.sources import SourceText, size_of
from penstock.errors import FormatError, ShapeError, nearest

LONGEST_LINE = 1 << 28
"""Bytes of one line above which the file is taken for something else."""


class JsonLines:
    """Every line that is not blank is a document; those beyond `limit` bytes are left out."""

    def __init__(self, files: Sequence[Path], field: str, limit: int) -> None:
        self.files = tuple(files)
        self.field = field
        self.limit = limit
        total = sum(map(size_of, self.files))
        self.size = min(total, limit) if limit else total

    def fingerprint(self) -> str:
        return digest("jsonl", self.field, self.limit, *map(digest_file, self.files))

    def documents(self) -> Iterator[SourceText]:
        room = self.limit
        for path, line, content in self._lines():
            room -= len(content)
            if self.limit and room < 0:
                self._refuse_nothing(path, line, content, room)
                return
            yield parse_line(content, self.field, path, line)

    def _lines(self) -> Iterator[tuple[Path, int, bytes]]:
        """File, number and content of every line that is not blank."""
        for path in self.files:
            try:
                with path.open("rb") as file:
                    for line, content in enumerate(_bounded(file, path), 1):
                        if content.strip():
                            yield path, line, content
            except OSError as error:
                raise unreadable(path, error) from None

    def _refuse_nothing(self, path: Path, line: int, content: bytes, room: int) -> None:
        if room + len(content) == self.limit:  # it is the first
            raise ShapeError(
                f"data.limit_bytes is {self.limit:,}, but the first document, line {line} of "
                f"{str(path)!r}, has {len(content):,} bytes",
                hint="raise data.limit_bytes: documents are taken whole",
            )


def _bounded(file: BinaryIO, path: Path) -> Iterator[bytes]:
    number = 1
    while content := file.readline(LONGEST_LINE + 1):
        if len(content) > LONGEST_LINE:
            raise FormatError(
                f"{str(path)!r} has a line of more than {LONGEST_LINE:,} bytes",
                line=number,
                hint="JSON lines hold one document each, ended by a line break",
            )
        yield content
        number += 1


def parse_line(content: bytes, field: str, path: Path, line: int) -> SourceText:
    """The document that one line holds."""
    found = _decode(content, path, line)
    if not isinstance(found, dict):
        raise _refusal(path, line, "is not an object", f'write it as {{"{field}": "..."}}')
    if field not in found:
        raise _refusal(path, line, f"has no field {field!r}", nearest(field, list(found)[:20]))
    text = found[field]
    if not isinstance(text, str):
        kind = type(text).__name__
        raise _refusal(path, line, f"has a {kind} in {field!r}", "the field must hold a string")
    whole = text.encode(errors="replace").decode()  # half of a surrogate pair is no character
    replaced = sum(a != b for a, b in zip(text, whole)) if whole != text else 0
    return SourceText(whole, len(content), replaced)


def _decode(content: bytes, path: Path, line: int) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig" if line == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        where = f"has byte {content[error.start]:#04x} at {error.start + 1}, which is not UTF-8"
        raise _refusal(path, line, where, "save the file as UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{str(path)!r} is not JSON lines: {error.msg}",
            line=line,
            column=error.pos + 1,
            hint="every line is one JSON object",
        ) from None
    except (RecursionError, ValueError) as error:  # nested too deeply, a number too long
        raise _refusal(path, line, f"cannot be read: {error}", "simplify that line") from None


def _refusal(path: Path, line: int, what: str, hint: str) -> FormatError:
    return FormatError(f"the line of {str(path)!r} {what}", line=line, hint=hint)
