"""From a source of text to tokens on disk, through the cache."""

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from penstock.data._digest import digest
from penstock.data._turns import wait_for_turn
from penstock.data.cache import Cached, CacheFacts, Writer, read_cache
from penstock.data.corpus import Array
from penstock.data.sources import Source, SourceText
from penstock.data.tokenizer import Tokenizer
from penstock.errors import RunError
from penstock.files.durable import replacement

Progress = Callable[[int, int], None]
"""Told while text is tokenised: bytes done, and bytes in all."""

BATCH = 1 << 20
"""Bytes of text from which documents are tokenised, together."""


def tokenise_source(
    source: Source, tokenizer: Tokenizer, folder: Path, progress: Progress | None
) -> tuple[Array, tuple[str, ...]]:
    """The tokens of a source, from the cache where it has them, and what is to be said of them."""
    text = source.fingerprint()
    key = digest("tokenised", text, tokenizer.fingerprint)
    path = folder / f"{key}.tokens"
    try:
        found = read_cache(path, key) or _made(source, tokenizer, path, key, progress)
    except OSError as error:
        raise RunError(
            f"the tokens cannot be kept in {str(folder)!r}: {error.strerror or error}",
            hint="free space there, or name another cache folder",
        ) from None
    return Array("the text", found.tokens, found.offsets, key), _notes(found.facts)


def _made(
    source: Source, tokenizer: Tokenizer, path: Path, key: str, progress: Progress | None
) -> Cached:
    """A new cache, unless another process has made it while this one waited for its turn."""
    with wait_for_turn(path) as part:
        if found := read_cache(path, key):
            return found
        with replacement(path, part) as file:
            _write(file, source, tokenizer, key, progress)
            if digest("tokenised", source.fingerprint(), tokenizer.fingerprint) != key:
                raise RunError(
                    "the text has changed while it was tokenised",
                    hint="start again when its files no longer change",
                )
    if made := read_cache(path, key):
        return made
    raise RunError(
        f"{str(path)!r} does not hold what was just written to it",
        hint="check the disk, or name another cache folder",
    )


def _write(
    file: BinaryIO, source: Source, tokenizer: Tokenizer, key: str, progress: Progress | None
) -> None:
    dtype = _smallest(tokenizer.vocabulary)
    writer = Writer(file, dtype)
    offsets = array("q", [0])
    done = damaged = replaced = empty = 0
    for batch in _batches(source.documents()):
        for tokens in tokenizer.encode_all([document.text for document in batch]):
            writer.add(tokens)
            offsets.append(writer.tokens)
            empty += not len(tokens)
        done += sum(document.size for document in batch)
        damaged += sum(document.replaced > 0 for document in batch)
        replaced += sum(document.replaced for document in batch)
        if progress:
            progress(min(done, source.size), source.size)
    facts = CacheFacts(key, dtype, writer.tokens, len(offsets) - 1, damaged, replaced, empty)
    writer.finish(np.array(offsets, dtype=np.int64), facts)


def _smallest(vocabulary: int) -> str:
    """The smallest numbers that hold every token.

    >>> _smallest(256), _smallest(257), _smallest(128_256)
    ('<u1', '<u2', '<u4')
    """
    return "<u1" if vocabulary <= 1 << 8 else "<u2" if vocabulary <= 1 << 16 else "<u4"


def _batches(documents: Iterator[SourceText]) -> Iterator[list[SourceText]]:
    """Documents in lists that are worth the tokenizer's threads."""
    batch: list[SourceText] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += document.size
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _notes(facts: CacheFacts) -> tuple[str, ...]:
    """What a person wants to know of the text."""
    found = []
    if facts.replaced:
        found.append(
            f"{facts.replaced:,} characters in {facts.damaged:,} of {facts.documents:,} documents "
            f"were not UTF-8 and are replaced"
        )
    if facts.empty:
        found.append(f"{facts.empty:,} of {facts.documents:,} documents are empty and skipped")
    return tuple(found)
