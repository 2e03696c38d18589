"""The few file operations that the safety of a checkpoint rests on.

A file is on the disk only after it was synced, and its name only after its folder was. Everything
that writes, renames or deletes goes through one object, so that a test can let any single
operation fail, or end the process in it.
"""

import os
import shutil
from pathlib import Path
from typing import BinaryIO


class Disk:
    """Operations as the system offers them."""

    def make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path) -> BinaryIO:
        """A new file; one that is there already is not written over."""
        return open(path, "xb")

    def sync(self, file: BinaryIO) -> None:
        """Wait until everything written to the file is on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def sync_folder(self, folder: Path) -> None:
        """Wait until the names in the folder are on the disk."""
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove(self, folder: Path) -> None:
        """Delete a folder with what is in it."""
        shutil.rmtree(folder)


def reason(error: BaseException) -> str:
    """What went wrong, with the file where one is known."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error) or type(error).__name__
