"""Documents laid end to end and cut: the samples of a corpus where nothing is padded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Self

import numpy as np

from penstock.data._digest import FileMark, digest
from penstock.data.batch import IGNORE
from penstock.data.corpus import Corpus, Longs
from penstock.data.order import shuffle
from penstock.data.packing import PackedDocuments, PackedRow, pack_documents, row
from penstock.data.stream import SameSamples, SampleStream, epoch_of
from penstock.errors import ShapeError

DOCUMENT_ORDER, SEQUENCE_ORDER = 0, 1
"""Last seed of the two orders of an epoch, so that they are not the same one."""


class Epoch(NamedTuple):
    """One pass over the documents."""

    packed: PackedDocuments
    order: Longs
    """The sequences, in the order in which they are taken."""


@dataclass(frozen=True, eq=False)
class Samples(SampleStream):
    """Endless samples: the documents again and again, in another order each time."""

    corpus: Corpus
    documents: Longs
    """Documents of the corpus to take."""
    length: int
    """Tokens of a sequence."""
    seed: int

    def __post_init__(self) -> None:
        refuse_numbers(self.length, self.seed)
        if not self.count:
            raise ShapeError(
                f"a sequence has {self.length:,} tokens, but the data have only {self.tokens:,} in "
                f"{len(self.documents):,} documents",
                hint="take shorter sequences or more data",
            )

    @cached_property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return int(self.corpus.lengths[self.documents].sum())

    @property
    def count(self) -> int:
        """Samples of one epoch."""
        return self.tokens // self.length

    @property
    def dropped(self) -> int:
        """Tokens at the end of an epoch that are too few for a sequence; each time others."""
        return self.tokens % self.length

    @property
    def files(self) -> tuple[FileMark, ...]:
        return self.corpus.files

    @cached_property
    def fingerprint(self) -> str:
        """Of the documents, wherever they lie."""
        return digest("samples", self.corpus.fingerprint, self.documents.astype("<i8").tobytes())

    def lengths(self, numbers: Sequence[int]) -> Longs:
        return np.full(len(numbers), self.length)

    def documents_of(self, number: int) -> tuple[int, ...]:
        packed, sequence = self._place(number)
        return tuple(span.stop - span.start for span in packed.spans(sequence))

    def row(self, number: int) -> PackedRow:
        return row(self.corpus, *self._place(number))

    def _place(self, number: int) -> tuple[PackedDocuments, int]:
        epoch, place = epoch_of(number, self.count)
        packed, order = self._epoch(epoch)
        return packed, int(order[place])

    @cached_property
    def _epoch(self) -> Callable[[int], Epoch]:
        """The epoch of a number; a batch lies in two at most, so two are kept."""
        return lru_cache(maxsize=2)(self._made_epoch)

    def _made_epoch(self, epoch: int) -> Epoch:
        place = shuffle(len(self.documents), self.seed, epoch, DOCUMENT_ORDER)
        packed = pack_documents(self.corpus, self.documents[place], self.length)
        return Epoch(packed, shuffle(packed.count, self.seed, epoch, SEQUENCE_ORDER))


def refuse_numbers(length: int, seed: int) -> None:
    """Refuse sequences that no run can have."""
    if length < 1 or seed < 0:
        raise ShapeError(
            f"sequences of {length} tokens with seed {seed} cannot be made",
            hint="the length is 1 or more, the seed 0 or more",
        )


@dataclass(frozen=True, eq=False)
class Once(SameSamples):
    """Every sample once: those after the last repeat its tokens, but no label of them counts.

    An evaluation is a mean over labels, so it may ask for whole batches and still counts nothing
    twice where the last ones are not full.
    """

    @classmethod
    def of(cls, stream: SampleStream) -> Self:
        return cls(stream, stream.length, stream.seed)

    def lengths(self, numbers: Sequence[int]) -> Longs:
        return self.stream.lengths([min(number, self.count - 1) for number in numbers])

    def documents_of(self, number: int) -> tuple[int, ...]:
        return self.stream.documents_of(min(number, self.count - 1))

    def row(self, number: int) -> PackedRow:
        if number < self.count:
            return self.stream.row(number)
        last = self.stream.row(self.count - 1)
        return last._replace(labels=np.full_like(last.labels, IGNORE))
