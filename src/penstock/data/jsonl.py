"""Documents from lines of JSON: one object per line, which is a record.

A line that cannot be read is refused with its place, never passed over: what is left out in silence
is missed much too late.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from penstock.data._digest import FileMark, digest_marks, mark_files, unreadable
from penstock.data.records.reader import RecordReader
from penstock.data.records.refusal import RecordError
from penstock.data.sources import SourceDocument, beyond_limit, size_of, stamps
from penstock.errors import FormatError

LONGEST_LINE = 1 << 28
"""Bytes of one line above which the file is taken for something else."""


class JsonLines:
    """Every line that is not blank is a document; those beyond `limit` bytes are left out."""

    def __init__(self, files: Sequence[Path], reader: RecordReader, limit: int) -> None:
        self.files = tuple(files)
        self.reader = reader
        self.limit = limit
        total = sum(map(size_of, self.files))
        self.size = min(total, limit) if limit else total
        self.marks: tuple[FileMark, ...] = ()

    def fingerprint(self) -> str:
        self.marks = mark_files(self.files)
        return digest_marks("jsonl", self.reader.fingerprint, self.limit, marks=self.marks)

    def stamp(self) -> tuple[tuple[int, int], ...]:
        return stamps(self.files)

    def places(self) -> Iterator[str]:
        """Where each document is."""
        return (f"line {line} of {str(path)!r}" for path, line, _ in self._lines())

    def place(self, document: int) -> str:
        return next(islice(self.places(), document, None))

    def documents(self) -> Iterator[SourceDocument]:
        room = self.limit
        for path, line, content in self._lines():
            room -= len(content)
            if self.limit and room < 0:
                if room + len(content) == self.limit:  # it is the first
                    place = f"line {line} of {str(path)!r}"
                    raise beyond_limit(self.limit, place, len(content))
                return
            yield parse_line(content, self.reader, path, line)

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


def parse_line(content: bytes, reader: RecordReader, path: Path, line: int) -> SourceDocument:
    """The document that one line holds."""
    try:
        return reader.read(_decode(content, path, line), len(content))
    except RecordError as error:
        raise _refusal(path, line, error.message, error.hint) from None


def _decode(content: bytes, path: Path, line: int) -> Any:
    try:
        text = content.decode("utf-8-sig" if line == 1 else "utf-8")
        return json.loads(text.rstrip("\r\n"))  # or a text that is cut off has a line break in it
    except UnicodeDecodeError as error:
        where = f"has byte {content[error.start]:#04x} at {error.start + 1}, which is not UTF-8"
        raise _refusal(path, line, where, "save the file as UTF-8 text") from None
    except json.JSONDecodeError as error:
        said = error.msg.removesuffix(" at").removesuffix(" starting")  # the column is in front
        raise FormatError(
            f"{str(path)!r} is not JSON lines: {said}",
            line=line,
            column=error.pos + 1,
            hint="every line is one JSON object",
        ) from None
    except (RecursionError, ValueError) as error:  # nested too deeply, a number too long
        raise _refusal(path, line, f"cannot be read: {error}", "simplify that line") from None


def _refusal(path: Path, line: int, what: str, hint: str) -> FormatError:
    return FormatError(f"the line of {str(path)!r} {what}", line=line, hint=hint)
