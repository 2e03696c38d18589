"""Fingerprints: short names of contents, equal on every machine."""

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from penstock.errors import ShapeError, shown

BLOCK = 1 << 20
"""Bytes read at a time."""


def digest(*parts: str | bytes | int) -> str:
    """The fingerprint of a list; where one part ends and the next begins counts."""
    state = blake2b(digest_size=16)
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        state.update(len(content).to_bytes(8, "little"))
        state.update(content)
    return state.hexdigest()


def digest_file(path: Path) -> str:
    """The fingerprint of a file's content."""
    state = blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                state.update(block)
    except OSError as error:
        raise unreadable(path, error) from None
    return state.hexdigest()


class FileMark(NamedTuple):
    """A file that documents come from, and what says whether it is as it was."""

    path: str
    mark: str


def mark_files(files: Iterable[Path]) -> tuple[FileMark, ...]:
    """Fingerprints of files, which are all read."""
    return tuple(FileMark(str(path), digest_file(path)) for path in files)


def digest_marks(kind: str, *parts: str | int, marks: Iterable[FileMark]) -> str:
    """The fingerprint of what some files hold, wherever they lie."""
    return digest(kind, *parts, *(each.mark for each in marks))


def unreadable(path: Path, error: Exception) -> ShapeError:
    """The refusal of a file that the system does not give."""
    reason = getattr(error, "strerror", None) or str(error)
    return ShapeError(
        f"cannot read {shown(str(path), 300)}: {reason}",
        hint="check the path and its permissions",
    )
