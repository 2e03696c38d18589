"""One checkpoint, from tensors on the host to a folder that is safe.

    .partial- folder -> tensors and state, each file synced -> read back and compared with what was
    hashed -> manifest, synced -> renamed -> the folder above synced

Whatever stops this half way leaves a folder that nobody reads, and all older checkpoints.
"""

from contextlib import suppress
from pathlib import Path

from penstock.errors import RunError
from penstock.files.durable import Disk
from penstock.train.checkpoint import folders, manifest, storage
from penstock.train.checkpoint.copies import Content
from penstock.train.checkpoint.manifest import FileEntry
from penstock.train.checkpoint.ranks import Ranks


def write_checkpoint(folder: Path, content: Content, ranks: Ranks, disk: Disk) -> None:
    """Write a checkpoint of all ranks' blocks; on failure nothing of it is left."""
    target = folders.checkpoint_path(folder, content.step)
    written = ranks.first(lambda: _begin(folders.partial(target), disk))
    try:
        files = _fill(written, content, ranks, disk)
        ranks.first(lambda: _finish(written, content.step, files, disk))
    except RunError:
        if ranks.leads:
            with suppress(OSError):
                disk.remove(written)
        raise


def _begin(written: Path, disk: Disk) -> Path:
    disk.make(written)
    return written


def _fill(written: Path, content: Content, ranks: Ranks, disk: Disk) -> dict[str, FileEntry]:
    """The files of all ranks, each one read back."""
    files = storage.HashedFiles(disk)
    storage.write_tensors(written, content.blocks, files, ranks)
    ranks.first(lambda: files.put(written / manifest.STATE, content.state.encode()))
    parts = ranks.together(lambda: _settled(written, files))
    return {name: entry for part in parts for name, entry in part.items()}


def _settled(written: Path, files: storage.HashedFiles) -> dict[str, FileEntry]:
    """What this rank wrote, once it is known to lie there."""
    files.disk.sync_folder(written)
    if complaints := manifest.damage(written, files.written):
        raise RunError(f"the files differ from what was written: {'; '.join(complaints[:3])}")
    return files.written


def _finish(written: Path, step: int, files: manifest.Files, disk: Disk) -> None:
    last = storage.HashedFiles(disk)
    last.put(written / manifest.FILE, manifest.spell(step, files))
    _settled(written, last)
    folders.publish_folder(written, folders.checkpoint_path(written.parent, step), disk)
