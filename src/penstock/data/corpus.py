"""Documents as tokens, on disk: what packing and sampling read from.

The tokens stay memory-mapped and are copied a document's piece at a time, so a corpus may be far
larger than memory. Every piece is held against the vocabulary when it is read: a token outside it
would be a crash, or worse a silent wrap, deep inside the model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.data._digest import FileMark, digest
from penstock.data.tokenizer import Marks, Tokens
from penstock.errors import ShapeError

Longs = NDArray[np.int64]

BLOCK_TOKENS = 1 << 20
"""Tokens looked at together."""


class Array(NamedTuple):
    """Tokens of some documents, end to end."""

    name: str
    tokens: Tokens
    offsets: Longs
    """Where each document starts, and at last where the tokens end."""
    fingerprint: str
    runs: Longs | None = None
    """Where tokens begin and cease to count in the loss, in turns; None where all count."""
    before: int = 0
    """Documents of the same text that other arrays hold."""
    place: Callable[[int], str] | None = None
    """Where a document of the text is; it may read files to say so."""
    files: tuple[FileMark, ...] = ()
    """Where the documents come from; of a text the first array says it for all."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents, numbered from 0 over all arrays; empty ones are left out."""

    arrays: tuple[Array, ...]
    vocabulary: int
    array: Longs
    """Array of each document."""
    start: Longs
    """Where each document starts in its array."""
    number: Longs
    """Number of each document in its array, empty ones counted."""
    lengths: Longs
    """Tokens of each document."""
    fingerprint: str

    @property
    def files(self) -> tuple[FileMark, ...]:
        """Where the documents come from."""
        return tuple(file for array in self.arrays for file in array.files)

    def tokens(self, document: int, start: int, stop: int) -> Longs:
        """A copy of some tokens of a document."""
        array = self.arrays[int(self.array[document])]
        base = int(self.start[document])
        found = array.tokens[base + start : base + stop].astype(np.int64)
        if found.size and not (found.min() >= 0 and found.max() < self.vocabulary):
            at = int(np.argmax((found < 0) | (found >= self.vocabulary)))
            raise self._outside(document, start + at, int(found[at]))
        return found

    def counted(self, document: int, start: int, stop: int) -> Marks | None:
        """Which tokens of a part of a document count in the loss; None where all do."""
        runs = self.arrays[int(self.array[document])].runs
        if runs is None:
            return None
        base = int(self.start[document])
        places = np.arange(base + start, base + stop)
        return (np.searchsorted(runs, places, side="right") & 1).astype(np.bool_)

    def place(self, document: int) -> str:
        """Which document it is, for a person."""
        array = self.arrays[int(self.array[document])]
        number = array.before + int(self.number[document])
        where = f" ({array.place(number)})" if array.place else ""
        return f"document {number} of {array.name}{where}"

    def _outside(self, document: int, offset: int, token: int) -> ShapeError:
        return ShapeError(
            f"{self.place(document)} has token {token:,} at offset {offset:,}, "
            f"but the model's vocabulary is {self.vocabulary:,}",
            hint="use the tokenizer that belongs to the model, or a model of a larger vocabulary",
        )

    def refuse_outside(self) -> None:
        """Look at every token now, where it can be told that one may be outside."""
        for number, array in enumerate(self.arrays):
            bounds = np.iinfo(array.tokens.dtype)
            if bounds.min < 0 or bounds.max >= self.vocabulary:
                for at in _blocks(len(array.tokens)):
                    self._refuse_block(number, at)

    def _refuse_block(self, number: int, at: slice) -> None:
        block = self.arrays[number].tokens[at]
        if block.min() >= 0 and block.max() < self.vocabulary:
            return
        where = at.start + int(np.argmax((block < 0) | (block >= self.vocabulary)))
        mine = np.flatnonzero(self.array == number)
        document = int(mine[np.searchsorted(self.start[mine], where, side="right") - 1])
        raise self._outside(
            document, where - int(self.start[document]), int(block[where - at.start])
        )


def _blocks(tokens: int) -> Iterator[slice]:
    return (slice(at, min(at + BLOCK_TOKENS, tokens)) for at in range(0, tokens, BLOCK_TOKENS))


def corpus(arrays: Sequence[Array], vocabulary: int) -> Corpus:
    """The documents of all arrays, one array after the other."""
    counts = [len(array.offsets) - 1 for array in arrays]
    starts = np.concatenate([array.offsets[:-1] for array in arrays])
    lengths = np.concatenate([np.diff(array.offsets) for array in arrays])
    filled = lengths > 0
    return Corpus(
        arrays=tuple(arrays),
        vocabulary=vocabulary,
        array=np.repeat(np.arange(len(arrays)), counts)[filled],
        start=starts[filled],
        number=np.concatenate([np.arange(count) for count in counts])[filled],
        lengths=lengths[filled],
        fingerprint=digest("corpus", *(array.fingerprint for array in arrays)),
    )
