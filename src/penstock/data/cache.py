"""Tokenised text on disk, so that it is made once and memory-mapped afterwards.

    tokens | offsets | runs | facts, as JSON | their length | digest of all this | mark

Offsets and runs have 8 bytes each. Runs are where tokens begin and cease to count in the loss, in
turns; there are none where all count. A long text has several files, its pieces, so that work that
is interrupted goes on with the piece it was at.

A file is complete or it is not there: it is written under another name, synced, then renamed. What
stands behind the tokens is known only at the end, so it is read from the end. A file that is
damaged anywhere fails its digest and counts as absent.
"""

import json
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np

from penstock.data._digest import BLOCK
from penstock.data.corpus import Longs
from penstock.data.tokenizer import Marks, Tokens

MARK = b"penstok2"
"""Eight bytes that end a file of this layout."""
ALIGN = 8
LENGTH_BYTES = 8
DIGEST = 32
TRAILER = DIGEST + len(MARK)


@dataclass(frozen=True)
class CacheFacts:
    """What a cache says of itself."""

    key: str
    """Fingerprint of the text and of the tokenizer."""
    dtype: str
    tokens: int
    documents: int
    damaged: int
    """Documents with bytes that are not UTF-8."""
    replaced: int
    """Characters that stand for such bytes."""
    empty: int
    """Documents without any token."""
    piece: int = 0
    """Number of this file among those of the text."""
    last: bool = True
    """Whether the text ends with it."""
    runs: int = -1
    """Numbers that say which tokens count; -1 where all do."""
    first_empty: int = -1
    """The first document without any token, counted from the start of the text; -1 for none."""
    unlabelled: int = 0
    """Documents that have tokens, but none that counts."""
    first_unlabelled: int = -1
    first_damaged: int = -1
    """The first document with bytes that are not UTF-8; -1 in caches that do not say it."""


@dataclass(frozen=True, eq=False)
class Cached:
    """A cache that was read back and found whole."""

    facts: CacheFacts
    tokens: Tokens
    offsets: Longs
    runs: Longs | None
    """Where tokens begin and cease to count, in turns; None where all count."""


class Writer:
    """Writes a cache from its start to its end, and remembers the digest."""

    def __init__(self, file: BinaryIO, dtype: str) -> None:
        self._file = file
        self._dtype = np.dtype(dtype)
        self._state = blake2b(digest_size=DIGEST)
        self._runs = array("q")
        self.tokens = 0

    def add(self, tokens: Tokens, counted: Marks | None = None) -> None:
        """The tokens of the next document, or of a part of it; all count unless it is said."""
        self._write(tokens.astype(self._dtype).tobytes())
        for start, stop in [(0, len(tokens))] if counted is None else _ranges(counted):
            self._count(self.tokens + start, self.tokens + stop)
        self.tokens += len(tokens)

    def _count(self, start: int, stop: int) -> None:
        if self._runs and self._runs[-1] == start:
            self._runs[-1] = stop
        elif stop > start:
            self._runs.extend((start, stop))

    @property
    def runs(self) -> int:
        """Numbers that say which tokens count, -1 where all do."""
        whole = [0, self.tokens] if self.tokens else []
        return -1 if self._runs.tolist() == whole else len(self._runs)

    def finish(self, offsets: Longs, facts: CacheFacts) -> None:
        """Everything behind the tokens."""
        self._write(bytes(-self.tokens * self._dtype.itemsize % ALIGN))
        self._write(offsets.astype("<i8").tobytes())
        if facts.runs >= 0:
            self._write(np.array(self._runs, dtype="<i8").tobytes())
        told = json.dumps(asdict(facts)).encode()
        self._write(told + len(told).to_bytes(LENGTH_BYTES, "little"))
        self._file.write(self._state.digest() + MARK)

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._state.update(content)


def _ranges(counted: Marks) -> Iterator[tuple[int, int]]:
    """Where marks begin and end.

    >>> [*_ranges(np.array([True, False, True, True]))]
    [(0, 1), (2, 4)]
    """
    edges = np.flatnonzero(np.diff(counted, prepend=False, append=False)).tolist()
    return zip(edges[::2], edges[1::2])


def read_cache(path: Path, key: str) -> Cached | None:
    """The cache of that key, or None where there is no whole one."""
    try:
        facts = _facts(path)
        return _mapped(path, facts) if facts and facts.key == key else None
    except OSError:
        return None


def _facts(path: Path) -> CacheFacts | None:
    """What the file says of itself, once its digest has shown that it says it truly."""
    covered = path.stat().st_size - TRAILER
    if covered < LENGTH_BYTES:
        return None
    with path.open("rb") as file:
        state = blake2b(digest_size=DIGEST)
        for block in _blocks(file, covered):
            state.update(block)
        if file.read(TRAILER) != state.digest() + MARK:
            return None
        file.seek(covered - LENGTH_BYTES)
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        file.seek(covered - LENGTH_BYTES - length)
        return CacheFacts(**json.loads(file.read(length)))


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (block := file.read(min(BLOCK, size))):
        size -= len(block)
        yield block


def _mapped(path: Path, facts: CacheFacts) -> Cached:
    stored = np.dtype(facts.dtype)
    behind = facts.tokens * stored.itemsize
    behind += -behind % ALIGN
    tokens: Tokens = np.empty(0, stored)
    if facts.tokens:
        tokens = np.memmap(path, stored, "r", shape=(facts.tokens,))
    offsets = np.fromfile(path, "<i8", facts.documents + 1, offset=behind)
    runs: Longs | None = None
    if facts.runs >= 0:
        behind += offsets.nbytes
        runs = np.fromfile(path, "<i8", facts.runs, offset=behind).astype(np.int64)
    return Cached(facts, tokens, offsets.astype(np.int64), runs)
