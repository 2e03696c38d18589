"""One run in a folder at a time: two would take back each other's records and checkpoints, and two
that export into one folder would mix their weights."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.errors import RunError, ShapeError, shown
from penstock.files.lock import hold_lock
from penstock.train.config.settings import Settings

LOCK = ".running"


@contextmanager
def claim_run(settings: Settings) -> Iterator[None]:
    """Hold everything that a run writes into, so that what is taken is refused at its start."""
    with claim_folder(Path(settings.run.directory)):
        if not settings.checkpoint.export:
            yield
            return
        with claim_export(Path(settings.checkpoint.export)):
            yield


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Hold the folder of a run until the block ends or the process does, however it ends."""
    with _claimed(folder, folder / LOCK, "run.directory") as held:
        if not held:
            raise RunError(
                f"another run is using {str(folder)!r}",
                hint="wait for it or end it, or give this one another run.directory",
            )
        yield


@contextmanager
def claim_export(folder: Path) -> Iterator[None]:
    """Hold the place of an export; the lock lies beside it, since the folder itself is replaced."""
    target = Path(os.path.realpath(folder))
    lock = target.with_name(f".{target.name}.exporting")
    with _claimed(target.parent, lock, "checkpoint.export") as held:
        if not held:
            raise RunError(
                f"another run exports into {str(folder)!r}",
                hint="wait for it, or export into another folder",
            )
        yield


@contextmanager
def _claimed(folder: Path, lock: Path, key: str) -> Iterator[bool]:
    """Make a folder and hold a lock in it, unless another process does."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ShapeError(
                f"cannot make {shown(str(folder), 300)}: {error.strerror}", hint=f"set {key}"
            ) from None
        try:
            held = stack.enter_context(hold_lock(lock))
        except OSError as error:
            raise ShapeError(
                f"cannot lock {shown(str(lock), 300)}: {error.strerror}",
                hint=f"give {key} where you may write, on a file system with locks; a second run "
                "there would not be noticed",
            ) from None
        yield held
