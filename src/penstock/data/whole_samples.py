"""Samples that are whole documents, and samples that several sources give in turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from penstock.data._digest import FileMark, digest
from penstock.data.corpus import Corpus, Longs
from penstock.data.order import shuffle
from penstock.data.packing import PackedRow
from penstock.data.samples import SEQUENCE_ORDER, refuse_numbers
from penstock.data.stream import SampleStream, epoch_of
from penstock.data.whole import WholeSequences, whole_row
from penstock.errors import ShapeError


@dataclass(frozen=True, eq=False)
class WholeSamples(SampleStream):
    """Endless samples of whole documents: the same sequences in another order in each epoch."""

    corpus: Corpus
    sequences: WholeSequences
    length: int
    seed: int

    def __post_init__(self) -> None:
        refuse_numbers(self.length, self.seed)
        if not self.count:
            raise ShapeError(
                f"no document has {self.length:,} tokens or fewer, so there is no sequence",
                hint="take longer sequences or more data",
            )

    @property
    def count(self) -> int:
        return self.sequences.count

    @property
    def files(self) -> tuple[FileMark, ...]:
        return self.corpus.files

    @cached_property
    def fingerprint(self) -> str:
        given = (*self.sequences.spans, self.sequences.order, self.sequences.bounds)
        return digest(
            "whole", self.corpus.fingerprint, *(one.astype("<i8").tobytes() for one in given)
        )

    @cached_property
    def padding(self) -> float:
        """Share of all tokens that is padding."""
        return 1 - float(self._lengths.sum()) / (self.count * self.length)

    @cached_property
    def _lengths(self) -> Longs:
        return self.sequences.lengths

    def lengths(self, numbers: Sequence[int]) -> Longs:
        return np.array([self._lengths[self._sequence(number)] for number in numbers])

    def documents_of(self, number: int) -> tuple[int, ...]:
        parts = self.sequences.parts(self._sequence(number))
        return tuple(span.stop - span.start for span in parts)

    def row(self, number: int) -> PackedRow:
        return whole_row(self.corpus, self.sequences, self._sequence(number), self.length)

    def unpadded(self, number: int) -> PackedRow:
        """The sample of that number without padding."""
        sequence = self._sequence(number)
        return whole_row(self.corpus, self.sequences, sequence, int(self._lengths[sequence]))

    def _sequence(self, number: int) -> int:
        epoch, place = epoch_of(number, self.count)
        return int(self._order(epoch)[place])

    @cached_property
    def _order(self) -> Callable[[int], Longs]:
        """The sequences in the order of an epoch; a batch lies in two at most, so two are kept."""
        return lru_cache(maxsize=2)(
            lambda epoch: shuffle(self.count, self.seed, epoch, SEQUENCE_ORDER)
        )
