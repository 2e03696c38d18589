"""Which files a checkpoint has, and what is in them.

Neither torch's checkpoints nor safetensors notice a flipped byte: they load, and the numbers are
wrong. So the manifest names every file with its size and its SHA-256. It is written last: a folder
without one was never finished. It has one spelling only, so that a change of any byte of it shows.

A list that was shortened in the right spelling, by whoever repaired a copy that lacks files, still
does not vouch for the checkpoint: the state and torch's own description must be on it, and every
file that the description names (find).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import RunError
from penstock.files.durable import reason
from penstock.files.regular import open_regular

FILE = "manifest.json"
STATE = "state.json"
DESCRIPTION = ".metadata"
"""Where torch's storage says which tensors there are, and in which files."""
ALWAYS = (STATE, DESCRIPTION)
"""Files that every checkpoint has."""
MANIFEST_FORMAT = "penstock checkpoint 1"

_BYTES_BELOW = 1 << 26
"""A manifest has some 120 bytes per file and one or two files per rank: 64 MiB is never reached."""

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
"""Names of files; none leads out of the folder."""


class FileEntry(NamedTuple):
    """One file: its size in bytes, and the SHA-256 of its content in hexadecimal."""

    size: int
    sha256: str


Files = Mapping[str, FileEntry]


def spell(step: int, files: Files) -> bytes:
    """The one way to write a manifest."""
    listed = {name: {"size": size, "sha256": sha} for name, (size, sha) in sorted(files.items())}
    tree = {"format": MANIFEST_FORMAT, "step": step, "files": listed}
    return json.dumps(tree, indent=1).encode() + b"\n"


def read_manifest(folder: Path, step: int) -> dict[str, FileEntry]:
    """The files of a checkpoint, out of a manifest that is as it was written."""
    try:
        with open_regular(folder / FILE) as file:
            content = file.read(_BYTES_BELOW)
        tree = json.loads(content)
    except FileNotFoundError:
        raise RunError(f"{FILE} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{FILE} cannot be read: {reason(error)}") from None
    files = _files(tree)
    if spell(step, files) != content:
        raise RunError(f"{FILE} was changed, or is of another format than {MANIFEST_FORMAT!r}")
    if unlisted := not_listed(ALWAYS, files):
        raise RunError(unlisted)
    return files


def content_digest(folder: Path, step: int) -> str:
    """What two checkpoints have in common only if all of their files are the same."""
    return hashlib.sha256(spell(step, read_manifest(folder, step))).hexdigest()


def not_listed(needed: Iterable[str], files: Files) -> str:
    """What is wrong with a list that leaves out files which a checkpoint consists of."""
    left_out = sorted(set(needed) - set(files))
    return f"{FILE} does not list {', '.join(left_out[:3])}" if left_out else ""


def _files(tree: Any) -> dict[str, FileEntry]:
    """The entries of a tree, as far as it has any; what is left out shows in the spelling."""
    listed = tree.get("files") if isinstance(tree, dict) else None
    if not isinstance(listed, dict):
        return {}
    entries = {name: _entry(value) for name, value in listed.items() if _PLAIN.fullmatch(name)}
    return {name: entry for name, entry in entries.items() if entry}


def _entry(value: Any) -> FileEntry | None:
    match value:
        case {"size": int(size), "sha256": str(sha256)}:
            return FileEntry(size, sha256)
        case _:
            return None


def misfits(folder: Path, files: Files) -> list[str]:
    """Files that are missing or have another size: what can be told without reading them."""
    return [
        complaint
        for name, entry in files.items()
        if (complaint := _size_complaint(folder / name, entry.size))
    ]


def damage(folder: Path, files: Files) -> list[str]:
    """Files that are not what the manifest says, each with what is wrong."""
    return misfits(folder, files) or [
        complaint
        for name, entry in files.items()
        if (complaint := _content_complaint(folder / name, entry.sha256))
    ]


def _size_complaint(path: Path, size: int) -> str:
    try:
        found = path.stat().st_size
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    return "" if found == size else f"{path.name}: {found} bytes, but {size} were written"


def _content_complaint(path: Path, sha256: str) -> str:
    try:
        with open_regular(path) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    if found == sha256:
        return ""
    return f"{path.name}: SHA-256 {found[:12]}..., but {sha256[:12]}... was written"
