"""Where checkpoints lie, and how one appears and disappears in a single instant.

    step-00000120            a checkpoint that was finished
    .partial-...             one that is being written, or deleted: nobody reads it
    .aside-step-00000120     one whose place is being taken by another of the same step

A rename either happened or did not. So a checkpoint is written under a name that nobody reads and
renamed when it is whole, and it is deleted the other way round.
"""

import re
import secrets
from contextlib import suppress
from pathlib import Path

from penstock.errors import RunError
from penstock.files.durable import Disk
from penstock.train.checkpoint import manifest

PARTIAL = ".partial-"
ASIDE = ".aside-"

_STEP = re.compile(r"step-([0-9]{8,18})", re.ASCII)


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies.

    >>> checkpoint_path(Path("checkpoints"), 120).name
    'step-00000120'
    """
    return folder / f"step-{step:08d}"


def partial(target: Path) -> Path:
    """A name that nobody reads and nobody else takes."""
    return target.with_name(f"{PARTIAL}{target.name}-{secrets.token_hex(4)}")


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, whole or not, oldest first."""
    matches = (_STEP.fullmatch(path.name) for path in folder.iterdir() if path.is_dir())
    found = {int(match[1]) for match in matches if match}
    return sorted(step for step in found if checkpoint_path(folder, step).is_dir())


def tidy(folder: Path, disk: Disk) -> None:
    """Finish or undo what a run left half done when it died."""
    for path in list(folder.iterdir()):
        target = path.with_name(path.name.removeprefix(ASIDE))
        if path.name.startswith(ASIDE) and not target.exists():
            disk.rename(path, target)
        elif path.name.startswith((PARTIAL, ASIDE)):
            disk.remove(path)


def publish_folder(written: Path, target: Path, disk: Disk) -> None:
    """Give a folder that is whole its name; one that has the name already is kept until then."""
    aside = target.with_name(f"{ASIDE}{target.name}")
    replaces = target.exists()
    if replaces:
        if aside.exists():
            disk.remove(aside)
        disk.rename(target, aside)
    try:
        disk.rename(written, target)
    except OSError:
        if replaces:
            disk.rename(aside, target)
        raise
    disk.sync_folder(target.parent)
    if replaces:
        retire(aside, disk)


def retire(path: Path, disk: Disk) -> None:
    """Delete a checkpoint; what cannot be deleted now is deleted at the next start."""
    gone = partial(path)
    disk.rename(path, gone)
    with suppress(OSError):
        disk.remove(gone)


def prune(folder: Path, saved: int, keep: int, disk: Disk) -> None:
    """Delete what is older than the newest `keep`, counted from the one just saved.

    That one was read back, so it is good. Of the others only those count that are complete; the
    rest are deleted once they are older than all that count. What is newer than the one just saved
    was left by a run that had come further, and stays.
    """
    older = [step for step in steps(folder) if step < saved]
    counted = [step for step in reversed(older) if _complete(folder, step)][: keep - 1]
    if len(counted) == keep - 1:
        limit = min(counted, default=saved)
        for step in older:
            if step < limit:
                retire(checkpoint_path(folder, step), disk)


def _complete(folder: Path, step: int) -> bool:
    path = checkpoint_path(folder, step)
    try:
        return not manifest.misfits(path, manifest.read_manifest(path, step))
    except RunError:
        return False
