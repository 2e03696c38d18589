"""Where text comes from: files that are a document each, lines of JSON, Python's own sources."""

import os
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.data._digest import FileMark, digest_marks, mark_files, unreadable
from penstock.errors import ShapeError

REPLACED = "\ufffd"
"""What stands in a text for bytes that are not UTF-8."""
MOST_REPLACED = 0.1
"""Share of replaced characters from which a file is no text: a picture that a pattern caught."""
NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "test", "tests", "__pycache__"})
"""Folders of the standard library that some machines have and others do not."""


class SourceText(NamedTuple):
    """One document."""

    text: str
    size: int
    """Bytes it took in its file."""
    replaced: int
    """Characters that stand for bytes that are not UTF-8."""
    counted: tuple[tuple[int, int], ...] | None = None
    """Ranges of characters that count in the loss; None where all do."""
    rendered: bool = False
    """Whether a chat template has written the special tokens into the text."""


class SourceTokens(NamedTuple):
    """One document that somebody else has tokenised."""

    tokens: NDArray[np.int64]
    size: int
    counted: NDArray[np.bool_] | None
    """Tokens that count in the loss; None where all do."""
    replaced: int = 0


SourceDocument = SourceText | SourceTokens


class Source(Protocol):
    """Documents in an order that never changes."""

    @property
    def size(self) -> int:
        """Bytes of text to read."""
        ...

    @property
    def marks(self) -> tuple[FileMark, ...]:
        """Of its files, as they were when the fingerprint was taken last."""
        ...

    def fingerprint(self) -> str:
        """Of the contents, wherever the files lie; reads them all."""
        ...

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Sizes and times of the files: a quick look at whether somebody changes them."""
        ...

    def documents(self) -> Iterator[SourceDocument]:
        """The documents, one after another."""
        ...

    def place(self, document: int) -> str:
        """Where the document of that number is, for a person; may read files."""
        ...


class TextFiles:
    """Every file is a document. Bytes that are not UTF-8 are replaced, and counted."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.size = sum(map(size_of, self.files))
        self.marks: tuple[FileMark, ...] = ()

    def fingerprint(self) -> str:
        self.marks = mark_files(self.files)
        return digest_marks("text", marks=self.marks)

    def stamp(self) -> tuple[tuple[int, int], ...]:
        return stamps(self.files)

    def documents(self) -> Iterator[SourceDocument]:
        for path in self.files:
            yield _decoded(path)

    def place(self, document: int) -> str:
        return repr(str(self.files[document]))


def _decoded(path: Path) -> SourceText:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    text = content.decode(errors="replace")
    replaced = text.count(REPLACED) - content.count(REPLACED.encode())
    if replaced > MOST_REPLACED * len(text):
        raise ShapeError(
            f"{str(path)!r} is not text: {replaced:,} of {len(text):,} characters are not UTF-8",
            hint="leave it out of the paths, or convert it to UTF-8",
        )
    return SourceText(text, len(content), replaced)


def up_to(files: Sequence[Path], limit: int) -> list[Path]:
    """The first files that hold together at most `limit` bytes; all of them where it is 0."""
    if not limit:
        return list(files)
    kept: list[Path] = []
    room = limit
    for path in files:
        room -= size_of(path)
        if room < 0:
            break
        kept.append(path)
    if files and not kept:
        raise beyond_limit(limit, repr(str(files[0])), size_of(files[0]))
    return kept


def beyond_limit(limit: int, place: str, size: int) -> ShapeError:
    """The refusal of a limit that leaves no document."""
    return ShapeError(
        f"data.limit_bytes is {limit:,}, but the first document, {place}, has {size:,} bytes",
        hint="raise data.limit_bytes: documents are taken whole",
    )


def standard_library() -> list[Path]:
    """Python sources of the running interpreter's library, sorted by their path inside it."""
    root = Path(sysconfig.get_path("stdlib"))
    found: list[Path] = []
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_LIBRARY]
        found += [Path(place, name) for name in files if name.endswith(".py")]
    if not found:
        raise ShapeError(
            f"the standard library at {str(root)!r} has no Python sources",
            hint="set data.source to 'text' and name files in data.paths",
        )
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from None


def stamps(files: Sequence[Path]) -> tuple[tuple[int, int], ...]:
    """Size and time of change of each file."""
    try:
        return tuple((found.st_size, found.st_mtime_ns) for found in map(os.stat, files))
    except OSError as error:
        raise unreadable(Path(error.filename), error) from None
