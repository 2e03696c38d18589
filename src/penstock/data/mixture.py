"""Several sources in one stream of samples, each with its share.

Of every 10,000 samples a source gives a fixed number, spread evenly: the n-th of its k samples lies
in the n-th of k equal parts, at a place that the seed draws. So each prefix of a run has nearly the
shares that were asked for, the sample of a number is found without counting through those before
it, and a run that goes on finds the sources where it left them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.data._digest import FileMark, digest
from penstock.data.corpus import Longs
from penstock.data.packing import PackedRow
from penstock.data.stream import SampleStream, epoch_of
from penstock.errors import ShapeError

MIXTURE_BLOCK = 10_000
"""Samples after which the order of the sources begins again."""
_SOURCE_ORDER = 2
"""Last seed of this order, so that it is none of those of documents and sequences."""


def quotas(weights: Sequence[float]) -> list[int]:
    """How many of 10,000 samples each source gives: the nearest whole numbers.

    >>> quotas([1, 1, 1]), quotas([0.7, 0.3])
    ([3334, 3333, 3333], [7000, 3000])
    """
    exact = [MIXTURE_BLOCK * weight / sum(weights) for weight in weights]
    found = [int(share) for share in exact]
    rest = sorted(range(len(exact)), key=lambda at: found[at] - exact[at])
    for at in rest[: MIXTURE_BLOCK - sum(found)]:
        found[at] += 1
    return found


@dataclass(frozen=True, eq=False)
class Mixture(SampleStream):
    """Samples of several streams, in turns."""

    streams: tuple[SampleStream, ...]
    weights: tuple[float, ...]
    length: int
    seed: int

    def __post_init__(self) -> None:
        for number, quota in enumerate(self._quotas):
            if not quota:
                raise ShapeError(
                    f"data.weights has {self.weights[number]} for source {number}, which is less "
                    f"than one of {MIXTURE_BLOCK:,} samples",
                    hint="give a larger weight, or leave the source out",
                )

    @cached_property
    def _quotas(self) -> list[int]:
        return quotas(self.weights)

    @property
    def count(self) -> int:
        return sum(stream.count for stream in self.streams)

    @property
    def files(self) -> tuple[FileMark, ...]:
        """Those of all streams, each once: streams may be parts of one corpus."""
        return tuple(dict.fromkeys(file for stream in self.streams for file in stream.files))

    @cached_property
    def fingerprint(self) -> str:
        return digest("mixture", *self._quotas, *(one.fingerprint for one in self.streams))

    def lengths(self, numbers: Sequence[int]) -> Longs:
        found = [self.source_of(number) for number in numbers]
        return np.array([self.streams[one].lengths([at])[0] for one, at in found])

    def documents_of(self, number: int) -> tuple[int, ...]:
        stream, inside = self.source_of(number)
        return self.streams[stream].documents_of(inside)

    def row(self, number: int) -> PackedRow:
        stream, inside = self.source_of(number)
        return self.streams[stream].row(inside)

    def source_of(self, number: int) -> tuple[int, int]:
        """The stream that gives a sample, and the number that the sample has there."""
        block, place = epoch_of(number, MIXTURE_BLOCK)
        stream = int(self._pattern[place])
        return stream, block * self._quotas[stream] + int(self._before[place])

    @cached_property
    def _pattern(self) -> Longs:
        """The stream of each place of a block."""
        owners = np.repeat(np.arange(len(self._quotas)), self._quotas)
        inside = np.concatenate([np.arange(quota) for quota in self._quotas])
        drawn = _uniform(MIXTURE_BLOCK, self.seed, _SOURCE_ORDER)
        places = (inside + drawn) / np.repeat(self._quotas, self._quotas)
        return owners[np.argsort(places, kind="stable")]

    @cached_property
    def _before(self) -> Longs:
        """How many earlier places of the block have the same stream."""
        found = np.empty(MIXTURE_BLOCK, dtype=np.int64)
        for stream, quota in enumerate(self._quotas):
            found[self._pattern == stream] = np.arange(quota)
        return found


def _uniform(count: int, *seeds: int) -> NDArray[np.float64]:
    """Numbers from 0 to 1 that depend on the seeds alone."""
    raw = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(count)
    return (raw >> 11).astype(np.float64) * 2.0**-53
