"""Records from files of several kinds, told by their endings: lines of JSON, and tables."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice
from pathlib import Path

from penstock.data._digest import FileMark, digest
from penstock.data.jsonl import JsonLines
from penstock.data.records.reader import RecordReader
from penstock.data.records.tables import TableRows, dataset_files, is_dataset
from penstock.data.sources import SourceDocument, beyond_limit, stamps
from penstock.errors import ShapeError

TABLE_ENDINGS = (".parquet", ".arrow")
RECORD_ENDINGS = (".jsonl", *TABLE_ENDINGS)


class RecordFiles:
    """The records of some files, one file after the other; those beyond `limit` bytes are left
    out."""

    def __init__(self, files: Sequence[Path], reader: RecordReader, limit: int) -> None:
        self.files, self.limit = tuple(files), limit
        for path in self.files:
            if path.suffix not in RECORD_ENDINGS:
                raise ShapeError(
                    f"{str(path)!r} does not say what it holds",
                    hint=f"give files that end in {', '.join(RECORD_ENDINGS)}",
                )
        groups = groupby(files, lambda path: path.suffix in TABLE_ENDINGS)
        self.parts: list[JsonLines | TableRows] = [
            TableRows(list(some), reader) if table else JsonLines(list(some), reader, 0)
            for table, some in groups
        ]
        total = sum(part.size for part in self.parts)
        self.size = min(total, limit) if limit else total

    def fingerprint(self) -> str:
        return digest("records", self.limit, *(part.fingerprint() for part in self.parts))

    @property
    def marks(self) -> tuple[FileMark, ...]:
        return tuple(mark for part in self.parts for mark in part.marks)

    def stamp(self) -> tuple[tuple[int, int], ...]:
        return stamps(self.files)

    def documents(self) -> Iterator[SourceDocument]:
        room = self.limit
        for document in chain.from_iterable(part.documents() for part in self.parts):
            room -= document.size
            if self.limit and room < 0:
                if room + document.size == self.limit:  # it is the first
                    raise beyond_limit(self.limit, self.place(0), document.size)
                return
            yield document

    def place(self, document: int) -> str:
        places = chain.from_iterable(part.places() for part in self.parts)
        return next(islice(places, document, None))


def holds_records(path: Path) -> bool:
    """Whether a file in a folder is one of records."""
    return path.suffix in RECORD_ENDINGS


def record_paths(paths: Sequence[str]) -> list[str]:
    """The paths with the files in the place of each folder that `datasets` has written."""
    found: list[str] = []
    for path in paths:
        folder = Path(path).expanduser()
        found += map(str, dataset_files(folder)) if is_dataset(folder) else [path]
    return found
