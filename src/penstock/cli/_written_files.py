"""Files that are written after long work: what would not reach them is refused before it."""

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ShapeError, shown


def refuse_lost(files: Mapping[str, str | Path | None]) -> None:
    """Refuse paths, by their flags, that nothing can be written to, and one path given twice."""
    for flag, path in files.items():
        if path == "":  # a variable of a shell that is not set
            raise ShapeError(f"{flag} is empty", hint=f"give a file, or leave {flag} out")
    given = {flag: Path(path) for flag, path in files.items() if path is not None}
    for flag, path in given.items():
        _refuse_one(flag, path)
        sharing = [other for other, second in given.items() if second.absolute() == path.absolute()]
        if len(sharing) > 1:
            raise ShapeError(
                f"{' and '.join(sharing)} would both be written to {shown(str(path), 300)}",
                hint="give each a file of its own",
            )


def _refuse_one(flag: str, path: Path) -> None:
    folder = path.absolute().parent
    name = shown(str(path), 300)
    if str(path) == "-":
        raise ShapeError(f"{flag} is '-', and stdout has the answer", hint="give a file")
    if not (os.access(folder, os.W_OK) and folder.is_dir()):
        raise ShapeError(
            f"cannot write {name}: {folder} is not a folder that can be written to",
            hint=f"give {flag} a path in a folder that exists",
        )
    try:
        is_folder = path.is_dir()
    except OSError as error:  # a name that is longer than any can be
        raise ShapeError(
            f"cannot write {name}: {error.strerror}", hint=f"give {flag} another name"
        ) from None
    if is_folder:
        raise ShapeError(f"cannot write {name}: it is a folder", hint=f"give {flag} a file")
