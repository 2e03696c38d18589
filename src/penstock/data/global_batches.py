"""Which samples a step takes, known before a token of them is read.

A policy that makes a plan for every batch must know its lengths while the step before runs. A
global batch is a function of where it begins: the next samples, at most so many, and at most so
many tokens. Lengths come from the cache. Nothing is left out and nothing changes its place from one
batch to another, so the batches are the same under every policy and after every restart.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.data.batch import IGNORE, Microbatch
from penstock.data.packing import PackedRow
from penstock.data.stream import SameSamples, SampleStream
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

    @cached_property
    def limited(self) -> SampleStream:
        """The stream with the limit, for whoever makes microbatches of its steps."""
        if not self.tokens:
            return self.stream
        return LimitedStream(self.stream, self.stream.length, self.stream.seed, self.tokens)

    def at(self, start: int) -> GlobalBatch:
        """The batch that begins with a sample; `at(batch.stop)` is the one after it."""
        numbers = self.limited.numbers(start, self.sequences)
        return GlobalBatch(numbers, tuple(map(self.stream.documents_of, numbers)))


@dataclass(frozen=True, eq=False)
class LimitedStream(SameSamples):
    """A stream of which a step takes at most so many tokens."""

    tokens: int

    def numbers(self, start: int, places: int) -> range:
        sizes = np.cumsum(self.lengths(range(start, start + places)))
        return range(start, start + int(np.searchsorted(sizes, self.tokens, side="right")))

    def batch_at(
        self, start: int, replica: int, replicas: int, microbatches: int, rows: int
    ) -> tuple[Microbatch, ...]:
        stop = self.numbers(start, replicas * microbatches * rows).stop
        ended = _EndedStream(self.stream, self.length, self.seed, stop)
        return ended.batch_at(start, replica, replicas, microbatches, rows)


@dataclass(frozen=True, eq=False)
class _EndedStream(SameSamples):
    """A stream that has padding from a sample on."""

    stop: int

    def row(self, number: int) -> PackedRow:
        if number < self.stop:
            return self.stream.row(number)
        tokens = np.zeros(self.length, dtype=np.int64)
        return PackedRow(tokens, np.full_like(tokens, IGNORE), (0,))
