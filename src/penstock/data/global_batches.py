"""Which samples a step takes, known before a token of them is read.

A policy that makes a plan for every batch must know its lengths while the step before runs. A
global batch is a function of where it begins: the next samples, at most so many, and at most so
many tokens. Lengths come from the cache. Nothing is left out and nothing changes its place from one
batch to another, so the batches are the same under every policy and after every restart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.data.batch import IGNORE
from penstock.data.corpus import Longs
from penstock.data.packing import PackedRow
from penstock.data.stream import SampleStream
from penstock.errors import ShapeError


@dataclass(frozen=True)
class GlobalBatch:
    """The samples of one step."""

    numbers: range
    """Numbers of the samples."""
    documents: tuple[tuple[int, ...], ...]
    """Tokens of each document, or part of one, of each sample."""

    @property
    def stop(self) -> int:
        """Where the batch after it begins."""
        return self.numbers.stop

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sample, padding apart."""
        return tuple(map(sum, self.documents))

    @property
    def tokens(self) -> int:
        """Tokens of the batch, padding apart."""
        return sum(self.lengths)


@dataclass(frozen=True)
class GlobalBatches:
    """The batches of a stream."""

    stream: SampleStream
    sequences: int
    """Samples of a batch at most."""
    tokens: int = 0
    """Tokens of a batch at most, padding apart; 0 for as many as its samples have."""

    def __post_init__(self) -> None:
        if self.sequences < 1 or (self.tokens and self.tokens < self.stream.length):
            raise ShapeError(
                f"a batch of {self.sequences} samples and {self.tokens:,} tokens has no room for a "
                f"sequence of {self.stream.length:,}",
                hint="give batch.tokens at least batch.length, and 1 sample or more",
            )

    def at(self, start: int) -> GlobalBatch:
        """The batch that begins with a sample; `at(batch.stop)` is the one after it."""
        stop = start + self.sequences
        if self.tokens:
            sizes = np.cumsum(self.stream.lengths(range(start, stop)))
            stop = start + int(np.searchsorted(sizes, self.tokens, side="right"))
        numbers = range(start, stop)
        return GlobalBatch(numbers, tuple(map(self.stream.documents_of, numbers)))

    def padded(self, batch: GlobalBatch) -> SampleStream:
        """The stream with padding in the place of all samples after a batch, for microbatches of
        which there are as many in each step."""
        return _EndedStream(self.stream, self.stream.length, self.stream.seed, batch.stop)


@dataclass(frozen=True, eq=False)
class _EndedStream(SampleStream):
    """A stream that has nothing from a sample on."""

    stream: SampleStream
    length: int
    seed: int
    stop: int

    @property
    def count(self) -> int:
        return self.stream.count

    @property
    def fingerprint(self) -> str:
        return self.stream.fingerprint

    def lengths(self, numbers: Sequence[int]) -> Longs:
        return np.array([sum(self.documents_of(number)) for number in numbers])

    def documents_of(self, number: int) -> tuple[int, ...]:
        return self.stream.documents_of(number) if number < self.stop else ()

    def row(self, number: int) -> PackedRow:
        if number < self.stop:
            return self.stream.row(number)
        tokens = np.zeros(self.length, dtype=np.int64)
        return PackedRow(tokens, np.full_like(tokens, IGNORE), (0,))
