"""Disks that fail, stop a process or lose what was not synced, at any one operation."""

import os
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any, BinaryIO, cast

from penstock.files.durable import Disk


class Killed(BaseException):
    """The process is gone: nothing that follows is done, clean-up included."""


Fault = Callable[["FaultyDisk", str], None]


class FaultyFile:
    """A file whose writes are operations of a faulty disk."""

    def __init__(self, file: BinaryIO, disk: "FaultyDisk", path: Path) -> None:
        self.file, self.disk, self.path = file, disk, path

    def write(self, content: Any) -> int:
        half = bytes(content)[: len(content) // 2]
        return self.disk.operation(
            "write", lambda: self.file.write(content), lambda: self.file.write(half)
        )

    def flush(self) -> None:
        self.file.flush()

    def fileno(self) -> int:
        return self.file.fileno()

    def __enter__(self) -> "FaultyFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


class FaultyDisk(Disk):
    """Counts its operations, and lets the one numbered `at` go wrong by `fault`."""

    def __init__(self, at: int = -1, fault: Fault | None = None) -> None:
        self.at, self.fault = at, fault
        self.done: list[str] = []
        self.dead = False
        self.content: set[Path] = set()
        """Files whose content is not on the disk yet."""
        self.names: dict[Path, Path | None] = {}
        """Names that are not on the disk yet, and what they are until then: another, or none."""
        self.replaced: dict[Path, bytes] = {}
        """Files whose name another one took; they come back until that is on the disk."""

    def operation(
        self, name: str, whole: Callable[[], Any], half: Callable[[], Any] = lambda: None
    ) -> Any:
        if self.dead:
            raise Killed
        self.done.append(name)
        if len(self.done) - 1 == self.at and self.fault:
            half()
            return self.fault(self, name)
        return whole()

    def make(self, folder: Path) -> None:
        self.operation("make", lambda: super(FaultyDisk, self).make(folder))

    def create(self, path: Path) -> BinaryIO:
        opened = self.operation("create", lambda: super(FaultyDisk, self).create(path))
        self.content.add(path)
        self.names[path] = None
        return cast(BinaryIO, FaultyFile(opened, self, path))

    def sync(self, file: BinaryIO) -> None:
        self.operation("sync", lambda: super(FaultyDisk, self).sync(file))
        self.content.discard(cast(FaultyFile, file).path)

    def sync_folder(self, folder: Path) -> None:
        self.operation("sync folder", lambda: super(FaultyDisk, self).sync_folder(folder))
        self.names = {path: old for path, old in self.names.items() if path.parent != folder}
        self.replaced = {p: old for p, old in self.replaced.items() if p.parent != folder}

    def rename(self, source: Path, target: Path) -> None:
        before = {target: target.read_bytes()} if target.is_file() else {}
        self.operation("rename", lambda: super(FaultyDisk, self).rename(source, target))
        self.content = {moved(path, source, target) for path in self.content}
        self.names = {moved(path, source, target): old for path, old in self.names.items()}
        self.names[target] = source
        self.replaced |= before

    def discard(self, path: Path) -> None:
        self.operation("discard", lambda: super(FaultyDisk, self).discard(path))

    def remove(self, folder: Path) -> None:
        first = next(folder.iterdir(), None)
        self.operation(
            "remove",
            lambda: super(FaultyDisk, self).remove(folder),
            lambda: first.unlink() if first else None,
        )


def full(disk: FaultyDisk, name: str) -> None:
    """The disk is full, or broken: this operation fails, the next ones may work."""
    raise OSError(ENOSPC, os.strerror(ENOSPC))


def lost(disk: FaultyDisk, name: str) -> None:
    """Half of a write is lost, and nobody says so; other operations do nothing at all."""


def kill(disk: FaultyDisk, name: str) -> None:
    """The process dies here."""
    disk.dead = True
    raise Killed


def power_cut(disk: FaultyDisk, name: str) -> None:
    """The machine dies here: files that were not synced are cut, names go back."""
    disk.dead = True
    for path in filter(Path.exists, disk.content):
        os.truncate(path, path.stat().st_size // 2)
    for path, old in disk.names.items():
        if old is None:
            path.unlink(missing_ok=True)
    for path, old in reversed(disk.names.items()):
        if old and path.exists():
            path.rename(old)
    for path, content in disk.replaced.items():
        path.write_bytes(content)
    raise Killed


def moved(path: Path, source: Path, target: Path) -> Path:
    """Where a path is after a rename of it or of a folder above it."""
    return target / path.relative_to(source) if path.is_relative_to(source) else path
