"""From settings to samples: find the files, tokenise, hold documents out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.data.arrangement import Arrangement, named_notes
from penstock.data.corpus import Array, Corpus, Longs, corpus
from penstock.data.mixture import Mixture
from penstock.data.open_source import open_arrays, source_files
from penstock.data.order import shuffle
from penstock.data.paths import refuse_shared
from penstock.data.samples import Once
from penstock.data.settings import DataSettings
from penstock.data.stream import SampleStream
from penstock.data.tokenise import Progress
from penstock.errors import ShapeError, shown

LOOK_AT_ALL_UP_TO = 1 << 27
"""Tokens of given arrays up to which all are held against the vocabulary before training starts;
larger ones are not read whole, and every piece is looked at when it is read."""
HELD_OUT = 0
"""Seed of what is held out, the choice and the order: the same whatever the seed of the run, so
that runs can be compared."""

HELD_OUT_NAME = "held-out data"
"""What stands in front of what is said of it."""


@dataclass(frozen=True, eq=False)
class Data:
    """What is trained on, and what is held out from it."""

    train: SampleStream
    held_out: SampleStream | None
    notes: tuple[str, ...]
    """What a person should be told of the data."""


class _NamedFiles(NamedTuple):
    """The files of a source."""

    name: str
    """What a person calls it; empty where there is one only."""
    files: tuple[Path, ...]


@dataclass(frozen=True, eq=False)
class _Documents:
    """Documents of one or several sources."""

    corpus: Corpus
    sources: tuple[Longs, ...]
    """Documents of each source."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Reader:
    """How paths become documents."""

    settings: DataSettings
    vocabulary: int
    cache: Path
    progress: Progress | None

    def documents(self, sources: Sequence[_NamedFiles]) -> _Documents:
        """The documents of some sources; what is to be said of them has their names."""
        arrays: list[tuple[Array, ...]] = []
        notes: list[str] = []
        for name, files in sources:
            read, more = open_arrays(self.settings, files, self.cache, self.progress)
            _refuse_empty(read, files)
            arrays.append(read)
            notes += named_notes(name, more)
        found = corpus([array for some in arrays for array in some], self.vocabulary)
        self._refuse_outside(found)
        ends = [0, *accumulate(map(len, arrays))]
        of_source = np.searchsorted(ends, found.array, side="right") - 1
        documents = (np.flatnonzero(of_source == number) for number in range(len(arrays)))
        return _Documents(found, tuple(documents), tuple(dict.fromkeys(notes)))

    def _refuse_outside(self, found: Corpus) -> None:
        given = self.settings.source == "tokens"
        if not given or sum(len(array.tokens) for array in found.arrays) <= LOOK_AT_ALL_UP_TO:
            found.refuse_outside()


def _refuse_empty(arrays: Sequence[Array], files: Sequence[Path]) -> None:
    """Refuse a source that nothing can be learned from; a mixture would take its share of it."""
    lengths = np.concatenate([np.diff(array.offsets) for array in arrays])
    if not (lengths > 1).any():
        raise ShapeError(
            f"{len(files):,} files hold {int(lengths.sum()):,} tokens in "
            f"{int((lengths > 0).sum()):,} documents, and none of them has two tokens to learn "
            f"from; first {str(files[0])!r}",
            hint="name other files in data.paths",
        )


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
    sources = _sources(settings)
    apart = source_files(settings, settings.held_out_paths) if settings.held_out_paths else ()
    refuse_shared([path for source in sources for path in source.files], apart)
    found = reader.documents(sources)
    parts: list[tuple[Longs, Longs]] = []
    streams: list[SampleStream] = []
    arrange = Arrangement(settings.packing, settings.longer, length, settings.policy)
    for (name, _), documents in zip(sources, found.sources, strict=True):
        with _worded(f"training data of {name}" if name else "training data"):
            parts.append(_split(documents, settings.held_out))
            streams.append(arrange.samples(found.corpus, parts[-1][0], seed, name))
    with _worded("training data"):
        train = _mixed(settings, streams, length, seed)
    held, kept = found.corpus, np.concatenate([out for _, out in parts])
    notes = found.notes
    if apart:
        others = reader.documents([_NamedFiles(HELD_OUT_NAME, apart)])
        held, kept, notes = others.corpus, others.sources[0], (*notes, *others.notes)
    with _worded(HELD_OUT_NAME):
        held_out = (
            Once.of(arrange.samples(held, kept, HELD_OUT, HELD_OUT_NAME)) if len(kept) else None
        )
    return Data(train, held_out, (*notes, *arrange.notes))


def _sources(settings: DataSettings) -> list[_NamedFiles]:
    """Each source: each entry of the paths where they have weights."""
    if not settings.weights:
        return [_NamedFiles("", source_files(settings, settings.paths))]
    return [
        _NamedFiles(shown(path, 300), source_files(settings, (path,))) for path in settings.paths
    ]


def _mixed(
    settings: DataSettings, streams: Sequence[SampleStream], length: int, seed: int
) -> SampleStream:
    if not settings.weights:
        return streams[0]
    return Mixture(tuple(streams), settings.weights, length, seed)


def _split(documents: Longs, share: float) -> tuple[Longs, Longs]:
    """Documents to train on and documents held out, at least one of each where a share is."""
    count = len(documents)
    if not share:
        return documents, np.arange(0)
    if count < 2:
        raise ShapeError(
            f"data.held_out is {share}, but there is {count} document to divide",
            hint="name other documents in data.held_out_paths",
        )
    held = min(max(round(share * count), 1), count - 1)
    order = documents[shuffle(count, HELD_OUT)]
    return np.sort(order[held:]), np.sort(order[:held])


@contextmanager
def _worded(what: str) -> Iterator[None]:
    """Say which data are refused."""
    try:
        yield
    except ShapeError as error:
        raise ShapeError(f"{what}: {error.message}", hint=error.hint) from None
