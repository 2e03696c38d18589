"""From settings to samples: find the files, tokenise, hold documents out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.data.arrays import holds_tokens, open_array
from penstock.data.corpus import Array, Corpus, Longs, corpus
from penstock.data.jsonl import JsonLines
from penstock.data.packing import shuffle
from penstock.data.paths import find_files, refuse_shared
from penstock.data.samples import Once, Samples
from penstock.data.settings import DataSettings
from penstock.data.sources import Source, TextFiles, standard_library, up_to
from penstock.data.tokenise import Progress, tokenise_source
from penstock.data.tokenizer import tokenizer
from penstock.errors import ShapeError

LOOK_AT_ALL_UP_TO = 1 << 27
"""Tokens of given arrays up to which all are held against the vocabulary before training starts;
larger ones are not read whole, and every piece is looked at when it is read."""
HELD_OUT = 0
"""Seed of what is held out, the choice and the order: the same whatever the seed of the run, so
that runs can be compared."""


@dataclass(frozen=True, eq=False)
class Data:
    """What is trained on, and what is held out from it."""

    train: Samples
    held_out: Samples | None
    notes: tuple[str, ...]
    """What a person should be told of the data."""


@dataclass(frozen=True)
class _Reader:
    """How paths become documents."""

    settings: DataSettings
    vocabulary: int
    cache: Path
    progress: Progress | None

    def corpus(self, files: tuple[Path, ...]) -> tuple[Corpus, tuple[str, ...]]:
        arrays, notes = self._arrays(files)
        found = corpus(arrays, self.vocabulary)
        if not (found.lengths > 1).any():
            raise ShapeError(
                f"{len(files):,} files hold {int(found.lengths.sum()):,} tokens in "
                f"{len(found.lengths):,} documents, and none of them has two tokens to learn from",
                hint="name other files in data.paths",
            )
        given = self.settings.source == "tokens"
        if not given or sum(len(array.tokens) for array in arrays) <= LOOK_AT_ALL_UP_TO:
            found.refuse_outside()
        return found, notes

    def _arrays(self, files: tuple[Path, ...]) -> tuple[list[Array], tuple[str, ...]]:
        settings = self.settings
        if settings.source == "tokens":
            return [open_array(path, settings.dtype) for path in files], ()
        made = tokenizer(settings.tokenizer, settings.end_token)
        array, notes = tokenise_source(self._text(files), made, self.cache, self.progress)
        return [array], notes

    def _text(self, files: tuple[Path, ...]) -> Source:
        if self.settings.source == "jsonl":
            return JsonLines(files, self.settings.field, self.settings.limit_bytes)
        return TextFiles(up_to(files, self.settings.limit_bytes))


def open_data(
    settings: DataSettings,
    length: int,
    vocabulary: int,
    seed: int,
    cache: Path,
    progress: Progress | None = None,
) -> Data:
    """The samples of a run, in sequences of `length` tokens below `vocabulary`.

    Text is tokenised into the folder `cache` the first time; `progress` is told of it.
    """
    reader = _Reader(settings, vocabulary, cache, progress)
    files = _files(settings, settings.paths)
    apart = _files(settings, settings.held_out_paths) if settings.held_out_paths else ()
    refuse_shared(files, apart)
    found, notes = reader.corpus(files)
    train, held = _split(len(found.lengths), settings.held_out)
    with _worded("training"):
        samples = Samples(found, train, length, seed)
    if apart:
        found, more = reader.corpus(apart)
        held, notes = np.arange(len(found.lengths)), notes + more
    with _worded("held-out"):
        held_out = Once(found, held, length, HELD_OUT) if len(held) else None
    return Data(samples, held_out, notes)


def _files(settings: DataSettings, paths: tuple[str, ...]) -> tuple[Path, ...]:
    """The files that the settings mean."""
    if settings.source == "stdlib":
        return tuple(standard_library())
    if settings.source == "tokens":
        return find_files(paths, holds_tokens, ".npy or .bin files")
    if settings.source == "jsonl":
        return find_files(paths, lambda path: path.suffix == ".jsonl", ".jsonl files")
    return find_files(paths, lambda path: True, "text files")


def _split(documents: int, share: float) -> tuple[Longs, Longs]:
    """Documents to train on and documents held out, at least one of each where a share is."""
    if not share:
        return np.arange(documents), np.arange(0)
    if documents < 2:
        raise ShapeError(
            f"data.held_out is {share}, but there is {documents} document to divide",
            hint="name other documents in data.held_out_paths",
        )
    held = min(max(round(share * documents), 1), documents - 1)
    order = shuffle(documents, HELD_OUT)
    return np.sort(order[held:]), np.sort(order[:held])


@contextmanager
def _worded(what: str) -> Iterator[None]:
    """Say which data are refused."""
    try:
        yield
    except ShapeError as error:
        raise ShapeError(f"{what} data: {error.message}", hint=error.hint) from None
