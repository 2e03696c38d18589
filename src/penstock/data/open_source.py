"""A source, by its name in the settings: which files it has, and the tokens of their documents."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from penstock.data.arrays import holds_tokens, open_array
from penstock.data.corpus import Array
from penstock.data.jsonl import JsonLines
from penstock.data.paths import find_files
from penstock.data.records.chat import ChatTemplate, find_template
from penstock.data.records.files import RECORD_ENDINGS, RecordFiles, holds_records, record_paths
from penstock.data.records.reader import RecordReader
from penstock.data.settings import HOLD_RECORDS, DataSettings
from penstock.data.sources import Source, TextFiles, size_of, standard_library, up_to
from penstock.data.tokenise import Progress, tokenise_source
from penstock.data.tokenizer import tokenizer

ASK_A_TEMPLATE = ("auto", "prompt", "instruction", "chat")
"""Formats of records that may be conversations."""


def source_files(settings: DataSettings, paths: Sequence[str]) -> tuple[Path, ...]:
    """The files that the settings mean."""
    if settings.source == "stdlib":
        return tuple(standard_library())
    if settings.source == "tokens":
        return find_files(paths, holds_tokens, ".npy or .bin files")
    if settings.source == "jsonl":
        return find_files(paths, lambda path: path.suffix == ".jsonl", ".jsonl files")
    if settings.source == "records":
        return find_files(record_paths(paths), holds_records, f"{', '.join(RECORD_ENDINGS)} files")
    return find_files(paths, lambda path: True, "text files")


def open_arrays(
    settings: DataSettings, files: tuple[Path, ...], cache: Path, progress: Progress | None
) -> tuple[tuple[Array, ...], tuple[str, ...]]:
    """The tokens of some files, and what is to be said of them."""
    if settings.source == "tokens":
        ready = tuple(open_array(path, settings.dtype) for path in files)
        return ready, tuple(_empty_arrays(ready))
    made = tokenizer(settings.tokenizer, settings.end_token)
    arrays, notes = tokenise_source(text_source(settings, files), made, cache, progress)
    documents = sum(len(array.offsets) - 1 for array in arrays)
    more = _empty_files(files) if settings.source in HOLD_RECORDS else ()
    return arrays, (*notes, *more, *_limit_notes(settings.limit_bytes, documents, files))


def _empty_arrays(arrays: Sequence[Array]) -> Iterator[str]:
    """Documents of ready tokens that have none."""
    lengths = [np.diff(array.offsets) for array in arrays]
    if empty := sum(int((each == 0).sum()) for each in lengths):
        first = next(at for at, each in enumerate(lengths) if not each.all())
        yield (
            f"{empty:,} of {sum(map(len, lengths)):,} documents are empty and skipped, first "
            f"document {int(np.argmin(lengths[first]))} of {arrays[first].name}"
        )


def _empty_files(files: Sequence[Path]) -> Iterator[str]:
    """Files without a record, which nobody would miss."""
    if empty := [path for path in files if not size_of(path)]:
        yield f"{len(empty):,} of {len(files):,} files are empty, first {str(empty[0])!r}"


def _limit_notes(limit: int, documents: int, files: Sequence[Path]) -> Iterator[str]:
    """What a limit leaves out; the documents behind it are not read, so bytes tell how much."""
    total = sum(map(size_of, files))
    if limit and total > limit:
        yield (
            f"data.limit_bytes is {limit:,}: the first {documents:,} documents are taken, the rest "
            f"of {total:,} bytes is left out"
        )


def text_source(settings: DataSettings, files: tuple[Path, ...]) -> Source:
    """The documents of some files, as text."""
    if settings.source not in HOLD_RECORDS:
        return TextFiles(up_to(files, settings.limit_bytes))
    reader = RecordReader(settings.field, settings.format, chat_template(settings))
    kind = JsonLines if settings.source == "jsonl" else RecordFiles
    return kind(files, reader, settings.limit_bytes)


def chat_template(settings: DataSettings) -> ChatTemplate | None:
    """The template of the settings, where records may need one."""
    if settings.source not in HOLD_RECORDS or settings.format not in ASK_A_TEMPLATE:
        return None
    return find_template(settings.tokenizer, settings.chat_template, settings.template_date)
