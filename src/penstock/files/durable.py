"""How a file reaches the disk so that nobody ever finds half of it.

A process can be killed and a machine can lose power at any moment. A file's content is safe only
after it was synced, and its name only after its folder was. So a file is written under another
name, synced, renamed, and its folder is synced: who looks finds the old file or the new one.

Everything that must not be lost is written here. The operations belong to one object, so that a
test can let any single one of them fail, or end the process in it.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
        sync_path(folder)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def discard(self, path: Path) -> None:
        """Delete a file if it is there."""
        path.unlink(missing_ok=True)

    def remove(self, folder: Path) -> None:
        """Delete a folder with what is in it."""
        shutil.rmtree(folder)


SYSTEM = Disk()
"""The disk of this machine."""


@contextmanager
def replacement(
    target: Path, beside: Path | None = None, disk: Disk = SYSTEM
) -> Iterator[BinaryIO]:
    """A file to write into, which takes the place of `target` when the block ends without an error.

    It keeps the permissions of what it replaces. It is called `beside` until then: a name that one
    process at a time uses, so that what a killed one leaves there is deleted; without it, a name
    that nobody else takes.
    """
    if beside:
        disk.discard(beside)
    written = beside or target.with_name(f".{secrets.token_hex(8)}.part")
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    try:
        with disk.create(written) as file:
            yield file
            disk.sync(file)
        if mode is not None:
            written.chmod(mode)
        disk.rename(written, target)
    except BaseException:
        disk.discard(written)
        raise
    disk.sync_folder(target.parent)


def write_file(target: Path, content: bytes, beside: Path | None = None) -> None:
    """Put a whole file in its place."""
    with replacement(target, beside) as file:
        file.write(content)


def sync_path(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def reason(error: BaseException) -> str:
    """What went wrong, with the file where one is known."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error) or type(error).__name__
