"""Which files are meant by paths, folders and patterns.

The order of files is the order of documents, and so a part of what a run is: it is sorted, and the
same on every machine that has the same files.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from glob import glob, has_magic
from pathlib import Path

from penstock.data._digest import unreadable
from penstock.errors import ShapeError, shown

WantedFile = Callable[[Path], bool]


def find_files(paths: Sequence[str], wanted: WantedFile, kind: str) -> tuple[Path, ...]:
    """The files that the paths mean, each once; in a folder, those that are `wanted`."""
    found: dict[Path, None] = {}
    for path in paths:
        files = _meant(path, wanted)
        if not files:
            raise ShapeError(
                f"no file matches {shown(path, 300)}",
                hint=f"give files, folders with {kind}, or patterns; relative ones start at "
                f"{os.getcwd()!r}",
            )
        found.update(dict.fromkeys(files))
    return tuple(found)


def _meant(path: str, wanted: WantedFile) -> list[Path]:
    """Files of one entry, sorted; a name that exists is itself, even with a `*` in it."""
    full = os.path.expanduser(path)
    if os.path.isdir(full):
        return _inside(Path(full), wanted)
    if os.path.isfile(full):  # a pipe or a terminal would be waited for
        return [Path(full)]
    if not has_magic(full):
        return []
    matches = (Path(match) for match in glob(full, recursive=True))
    return sorted(match for match in matches if match.is_file())


def _inside(folder: Path, wanted: WantedFile) -> list[Path]:
    """Files under a folder, except hidden ones."""

    def refuse(error: OSError) -> None:
        raise unreadable(Path(error.filename), error)

    found: list[Path] = []
    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(root, name) for name in files if not name.startswith(".")]
    return sorted(path for path in found if wanted(path) and path.is_file())


def refuse_shared(train: Iterable[Path], held_out: Iterable[Path]) -> None:
    """Documents that are trained on measure nothing."""
    known = {path.resolve() for path in train}
    for path in held_out:
        if path.resolve() in known:
            raise ShapeError(
                f"{str(path)!r} is both trained on and held out",
                hint="take it out of data.paths or out of data.held_out_paths",
            )
