"""From a source of text to tokens on disk, through the cache, piece by piece."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from penstock.data._digest import digest
from penstock.data._turns import wait_for_turn
from penstock.data.cache import Cached, CacheFacts, Writer, read_cache
from penstock.data.corpus import Array
from penstock.data.encode import document_batches, encode_documents
from penstock.data.sources import Source, SourceDocument
from penstock.data.tokenizer import Tokenizer
from penstock.errors import RunError
from penstock.files.durable import replacement

Progress = Callable[[int, int], None]
"""Told while text is tokenised: bytes done, and bytes in all."""

PIECE_BYTES = 1 << 26
"""Bytes of text after which a piece of the cache is complete: what an interruption may cost."""


def tokenise_source(
    source: Source, tokenizer: Tokenizer, folder: Path, progress: Progress | None
) -> tuple[tuple[Array, ...], tuple[str, ...]]:
    """The tokens of a source, from the cache where it has them, and what is to be said of them."""
    work = _Work(source, tokenizer, folder, _key(source, tokenizer))
    try:
        pieces = work.found()
        if not _complete(pieces):
            pieces = _made(work, progress)
    except OSError as error:
        raise RunError(
            f"the tokens cannot be kept in {str(folder)!r}: {error.strerror or error}",
            hint="free space there, or name another cache folder",
        ) from None
    return tuple(_arrays(work, pieces)), _notes(source, [piece.facts for piece in pieces])


def _key(source: Source, tokenizer: Tokenizer) -> str:
    return digest("tokenised", source.fingerprint(), tokenizer.fingerprint)


@dataclass(frozen=True)
class _Work:
    """A text, what makes tokens of it, and where they are kept."""

    source: Source
    tokenizer: Tokenizer
    folder: Path
    key: str

    def path(self, piece: int) -> Path:
        return self.folder / f"{self.key}.{piece}.tokens"

    def found(self) -> list[Cached]:
        """The whole pieces that are there, from the first one to the first that is missing."""
        pieces: list[Cached] = []
        while not _complete(pieces):
            piece = read_cache(self.path(len(pieces)), self.key)
            if piece is None or piece.facts.piece != len(pieces):
                break
            pieces.append(piece)
        return pieces


def _complete(pieces: Sequence[Cached]) -> bool:
    return bool(pieces) and pieces[-1].facts.last


def _arrays(work: _Work, pieces: Sequence[Cached]) -> Iterator[Array]:
    before = 0
    for number, piece in enumerate(pieces):
        mark = work.key if not number else digest(work.key, number)
        documents = (piece.tokens, piece.offsets, mark, piece.runs)
        files = () if number else work.source.marks
        yield Array("the text", *documents, before, work.source.place, files)
        before += piece.facts.documents


def _made(work: _Work, progress: Progress | None) -> list[Cached]:
    """The pieces, those that are missing newly made, unless another process has made them while
    this one waited for its turn."""
    with wait_for_turn(work.folder / f"{work.key}.tokens") as turn:
        pieces = work.found()
        stamp = work.source.stamp()
        rest = _Rest(work, pieces, progress)
        while not _complete(pieces):
            path = work.path(len(pieces))
            beside = turn.with_name(turn.name.replace(work.key, f"{work.key}.{len(pieces)}", 1))
            with replacement(path, beside) as file:
                last = rest.write_piece(file, len(pieces))
                _refuse_changed(work, stamp, last=last)
            pieces.append(_read_back(work, path))
    return pieces


def _refuse_changed(work: _Work, stamp: object, *, last: bool) -> None:
    """Text that has changed must leave nothing in the cache under the name of what it was."""
    if work.source.stamp() == stamp and (not last or _key(work.source, work.tokenizer) == work.key):
        return
    for piece in work.folder.glob(f"{work.key}.*.tokens"):
        piece.unlink(missing_ok=True)
    raise RunError(
        "the text has changed while it was tokenised",
        hint="start again when its files no longer change",
    )


def _read_back(work: _Work, path: Path) -> Cached:
    if made := read_cache(path, work.key):
        return made
    raise RunError(
        f"{str(path)!r} does not hold what was just written to it",
        hint="check the disk, or name another cache folder",
    )


class _Rest:
    """The documents that no piece holds yet, and how far their tokens are."""

    def __init__(self, work: _Work, pieces: Sequence[Cached], progress: Progress | None) -> None:
        self.work, self.progress = work, progress
        self.documents = sum(piece.facts.documents for piece in pieces)
        all_documents = work.source.documents()
        self.done = sum(one.size for one in islice(all_documents, self.documents))
        self.batches = document_batches(all_documents)

    def write_piece(self, file: BinaryIO, piece: int) -> bool:
        """Write the next piece; returns whether it is the last one."""
        dtype = _smallest(self.work.tokenizer.vocabulary)
        writer, counts = Writer(file, dtype), _Counts(self.documents)
        offsets, end, last = array("q", [0]), self.done + PIECE_BYTES, True
        for batch in self.batches:
            place = partial(self._place, counts.number)
            for one, (tokens, counted) in zip(
                batch, encode_documents(self.work.tokenizer, batch, place)
            ):
                writer.add(tokens, counted)
                offsets.append(writer.tokens)
                counts.add(one, len(tokens), counted is None or bool(counted[1:].any()))
            self.done += sum(document.size for document in batch)
            self._tell()
            if self.done >= end:
                last = False
                break
        self.documents += len(offsets) - 1
        sizes = (self.work.key, dtype, writer.tokens, len(offsets) - 1)
        facts = counts.facts(*sizes, piece=piece, last=last, runs=writer.runs)
        writer.finish(np.array(offsets, dtype=np.int64), facts)
        return last

    def _place(self, before: int, number: int) -> str:
        return self.work.source.place(before + number)

    def _tell(self) -> None:
        if self.progress:
            size = self.work.source.size
            self.progress(min(self.done, size), size)


class _Counts:
    """What is to be said of some documents."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.damaged = self.replaced = self.empty = self.unlabelled = 0
        self.first_empty = self.first_unlabelled = self.first_damaged = -1

    def add(self, document: SourceDocument, tokens: int, labelled: bool) -> None:
        if document.replaced:
            self.first_damaged = self.number if not self.damaged else self.first_damaged
            self.damaged += 1
            self.replaced += document.replaced
        if not tokens:
            self.first_empty = self.number if not self.empty else self.first_empty
            self.empty += 1
        elif not labelled:
            self.first_unlabelled = self.number if not self.unlabelled else self.first_unlabelled
            self.unlabelled += 1
        self.number += 1

    def facts(
        self,
        key: str,
        dtype: str,
        tokens: int,
        documents: int,
        *,
        piece: int,
        last: bool,
        runs: int,
    ) -> CacheFacts:
        kept = (self.damaged, self.replaced, self.empty, piece, last, runs, self.first_empty)
        marks = (self.unlabelled, self.first_unlabelled, self.first_damaged)
        return CacheFacts(key, dtype, tokens, documents, *kept, *marks)


def _smallest(vocabulary: int) -> str:
    """The smallest numbers that hold every token.

    >>> _smallest(256), _smallest(257), _smallest(128_256)
    ('<u1', '<u2', '<u4')
    """
    return "<u1" if vocabulary <= 1 << 8 else "<u2" if vocabulary <= 1 << 16 else "<u4"


def _notes(source: Source, pieces: Sequence[CacheFacts]) -> tuple[str, ...]:
    """What a person wants to know of the text."""
    found, documents = [], sum(facts.documents for facts in pieces)
    if replaced := sum(facts.replaced for facts in pieces):
        damaged = sum(facts.damaged for facts in pieces)
        number = next(one.first_damaged for one in pieces if one.damaged)
        where = f", first {source.place(number)}" if number >= 0 else ""  # an older cache
        found.append(
            f"{replaced:,} characters in {damaged:,} of {documents:,} documents "
            f"were not UTF-8 and are replaced{where}"
        )
    if empty := sum(facts.empty for facts in pieces):
        first = source.place(next(one.first_empty for one in pieces if one.empty))
        found.append(f"{empty:,} of {documents:,} documents are empty and skipped, first {first}")
    if unlabelled := sum(facts.unlabelled for facts in pieces):
        first = source.place(next(one.first_unlabelled for one in pieces if one.unlabelled))
        found.append(
            f"{unlabelled:,} of {documents:,} documents have no token that counts in the loss, "
            f"first {first}"
        )
    return tuple(found)
