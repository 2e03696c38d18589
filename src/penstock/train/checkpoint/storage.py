"""Blocks of tensors into files and back, by torch's distributed checkpoint.

Its plans and its file format do the work; the ranks agree through `Ranks`, and the files are
written through our own `Disk`. Each file is hashed on its way to the disk and not afterwards: a
hash of what came to lie there would vouch for a write that lost something.

It takes about a second to import, for torch's part. So it is imported where a checkpoint is read or
written, and a launcher that starts ranks does not wait for it.
"""

import hashlib
import io
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from penstock.errors import RunError
from penstock.files.durable import Disk, reason
from penstock.model.io.tensor_block import TensorBlocks
from penstock.train.checkpoint.manifest import FileEntry
from penstock.train.checkpoint.planners import BlockLoadPlanner, BlockSavePlanner
from penstock.train.checkpoint.ranks import Ranks

AnyPath = str | os.PathLike[str]


class Hashing(io.IOBase):
    """A file that is hashed while it is written; whoever opened it syncs and closes it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha = hashlib.sha256()
        self._size = 0
        self.error: OSError | None = None
        """The first failure; torch's writer replaces it by one that no longer says why."""

    def write(self, content: Any) -> int:
        try:
            self._file.write(content)
        except OSError as error:
            self.error = self.error or error
            raise
        self._sha.update(content)
        self._size += memoryview(content).nbytes
        return memoryview(content).nbytes

    def tell(self) -> int:
        return self._size

    @property
    def entry(self) -> FileEntry:
        return FileEntry(self._size, self._sha.hexdigest())


class HashedFiles(FileSystem):
    """The file system that torch's writer uses; `written` is what the manifest will say."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self.disk = disk
        self.written: dict[str, FileEntry] = {}

    @contextmanager
    def create_stream(self, path: AnyPath, mode: str) -> Generator[io.IOBase, None, None]:
        try:
            with self.disk.create(Path(path)) as file:
                stream = Hashing(file)
                try:
                    yield stream
                except Exception as error:
                    raise stream.error or error from None
                self.disk.sync(file)
        except OSError as error:
            error.filename = error.filename or str(path)
            raise
        self.written[Path(path).name] = stream.entry

    def rename(self, path: AnyPath, new_path: AnyPath) -> None:
        self.disk.rename(Path(path), Path(new_path))
        self.written[Path(new_path).name] = self.written.pop(Path(path).name)

    def put(self, path: Path, content: bytes) -> None:
        """A whole file at once."""
        with self.create_stream(path, "wb") as stream:
            stream.write(content)


def write_tensors(folder: Path, blocks: TensorBlocks, files: HashedFiles, ranks: Ranks) -> None:
    """Write the blocks of all ranks, each rank its own into its own file; no two ranks have the
    same one."""
    # The files are synced by HashedFiles, and the tensors are on the host already.
    writer = FileSystemWriter(folder, sync_files=False, per_thread_copy_ahead=0)
    writer.fs = files
    planner = BlockSavePlanner(blocks)
    writer.set_up_storage_writer(ranks.leads)
    local = ranks.together(lambda: writer.prepare_local_plan(planner.create_local_plan()))
    plans, metadata = planner.create_global_plan(local)
    plan = planner.finish_plan(writer.prepare_global_plan(plans)[ranks.rank])
    results = ranks.together(lambda: _write_own(writer, plan, planner))
    ranks.first(lambda: writer.finish(metadata, results))


def _write_own(
    writer: FileSystemWriter, plan: SavePlan, planner: BlockSavePlanner
) -> list[WriteResult]:
    """A rank that has nothing to write makes no file."""
    return writer.write_data(plan, planner).wait() if plan.items else []


def contents(folder: Path) -> Metadata:
    """What a checkpoint has: the shape and type of every tensor, and where it lies."""
    try:
        return FileSystemReader(folder).read_metadata()
    except Exception as error:  # a pickle that is not ours can raise anything
        raise RunError(f"{folder} cannot be read as a checkpoint: {reason(error)}") from error


def tensor_entries(folder: Path) -> Iterator[tuple[str, TensorStorageMetadata]]:
    """The tensors of a checkpoint by name, as its description says."""
    for name, entry in contents(folder).state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            yield name, entry


def files_with_tensors(folder: Path) -> set[str]:
    """The files in which a checkpoint has its tensors, as its description says."""
    return {place.relative_path for place in contents(folder).storage_data.values()}


def read_tensors(folder: Path, blocks: TensorBlocks) -> None:
    """Fill blocks of tensors, found by name, with what a checkpoint has for them."""
    reader, planner = FileSystemReader(folder), BlockLoadPlanner(blocks)
    metadata = contents(folder)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    reader.read_data(reader.prepare_local_plan(planner.plan(metadata)), planner).wait()
