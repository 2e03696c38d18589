"""Which samples a step takes, known before a token of them is read.

A policy that makes a plan for every batch must know its lengths while the step before runs. A
global batch is a function of where it begins: the next samples, at most so many, and at most so
many tokens. Lengths come from the cache. Nothing is left out and nothing changes its place from one
batch to another, so the batches are the same under every policy and after every restart.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

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
