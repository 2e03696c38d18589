"""Records from the rows of tables: Parquet and Arrow files, and folders that `datasets` writes.

Rows are read some at a time and only the fields that a record may have, so a table may be larger
than memory. A row's share of its file stands for its bytes, so that progress and `limit_bytes` do
not depend on how a library counts them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.data._digest import FileMark, digest_marks, mark_files, unreadable
from penstock.data.records.reader import RecordReader
from penstock.data.records.refusal import RecordError
from penstock.data.sources import SourceDocument, size_of
from penstock.errors import RunError, ShapeError
from penstock.files.json_object import read_object

TABLE_ROWS = 256
"""Rows of a Parquet file that are read together."""
MAGIC = b"ARROW1"
"""What an Arrow file begins with; a stream of Arrow, which `datasets` writes, does not."""
STATE, SPLITS = "state.json", "dataset_dict.json"
"""Files of a folder that `datasets` writes: of one table, and of several."""


class TableRow(NamedTuple):
    """One row."""

    path: Path
    number: int
    """Counted from 0, as `datasets` counts."""
    size: int
    record: dict[str, Any]

    @property
    def place(self) -> str:
        return f"row {self.number} of {str(self.path)!r}"


class TableRows:
    """Every row is a record."""

    def __init__(self, files: Sequence[Path], reader: RecordReader) -> None:
        self.files = tuple(files)
        self.reader = reader
        self.size = sum(map(size_of, self.files))
        self.marks: tuple[FileMark, ...] = ()

    def fingerprint(self) -> str:
        self.marks = mark_files(self.files)
        return digest_marks("table", self.reader.fingerprint, marks=self.marks)

    def documents(self) -> Iterator[SourceDocument]:
        for row in self._rows():
            try:
                yield self.reader.read(row.record, row.size)
            except RecordError as error:
                raise ShapeError(f"{row.place} {error.message}", hint=error.hint) from None

    def places(self) -> Iterator[str]:
        """Where each document is."""
        return (row.place for row in self._rows())

    def _rows(self) -> Iterator[TableRow]:
        for path in self.files:
            yield from table_rows(path, self.reader.fields)


def table_rows(path: Path, fields: frozenset[str]) -> Iterator[TableRow]:
    """The rows of a file, with those of the fields that it has."""
    pyarrow = _library(path)
    size, number = size_of(path), 0
    try:
        rows, batches = _opened(path, fields)
        for batch in batches:
            names = [name for name in batch.schema.names if name in fields]
            for record in batch.select(names).to_pylist():
                share = size * (number + 1) // rows - size * number // rows
                yield TableRow(path, number, share, record)
                number += 1
    except OSError as error:
        raise unreadable(path, error) from None
    except pyarrow.ArrowException as error:
        raise ShapeError(
            f"{str(path)!r} cannot be read as a table: {' '.join(str(error).split())[:200]}",
            hint="give .parquet or .arrow files, or a folder that `datasets` has written",
        ) from None


def _library(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise RunError(
            f"reading {str(path)!r} needs the package pyarrow, which is not installed",
            hint="pip install 'penstock[tables]'",
        ) from None
    return pyarrow


def _opened(path: Path, fields: frozenset[str]) -> tuple[int, Iterator[Any]]:
    """How many rows there are, and parts of the table that hold them."""
    if path.suffix == ".parquet":
        from pyarrow.parquet import ParquetFile

        file = ParquetFile(path)
        names = [name for name in file.schema_arrow.names if name in fields]
        return file.metadata.num_rows, file.iter_batches(TABLE_ROWS, columns=names)
    return sum(batch.num_rows for batch in _arrow(path)), _arrow(path)


def _arrow(path: Path) -> Iterator[Any]:
    """The parts of an Arrow file or stream, memory-mapped."""
    from pyarrow import ipc, memory_map

    with memory_map(str(path)) as mapped:
        if mapped.read(len(MAGIC)) == MAGIC:
            file = ipc.open_file(mapped)
            yield from map(file.get_batch, range(file.num_record_batches))
            return
        mapped.seek(0)
        yield from ipc.open_stream(mapped)


def is_dataset(folder: Path) -> bool:
    """Whether `datasets` has written a folder."""
    return (folder / STATE).is_file() or (folder / SPLITS).is_file()


def dataset_files(folder: Path) -> list[Path]:
    """The files of a folder that `datasets` has written, in the order of its rows."""
    if (folder / SPLITS).is_file():
        splits = read_object(folder / SPLITS, "name another folder").get("splits")
        names = [str(name) for name in splits] if isinstance(splits, list) else []
        raise ShapeError(
            f"{str(folder)!r} has several tables: {', '.join(names)[:200] or 'none'}",
            hint="name the folder of one of them"
            + (f", such as {str(folder / names[0])!r}" if names else ""),
        )
    state = read_object(folder / STATE, "name another folder")
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise ShapeError(
            f"{str(folder)!r} is a selection of rows of a larger table",
            hint="write it again with flatten_indices() before save_to_disk()",
        )
    listed = state.get("_data_files")
    names = [entry.get("filename") for entry in listed] if isinstance(listed, list) else []
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise ShapeError(
            f"{str(folder / STATE)!r} lists no files in _data_files",
            hint="write the folder again with save_to_disk()",
        )
    return [folder / name for name in names]
