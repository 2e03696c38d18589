"""Documents laid end to end and cut into sequences of one length.

    documents   aaaaaaabbbccccccccddd       in the order of the epoch
    sequences   aaaaaaab bbcccccc           of 8 tokens; the last ones, too few, are dropped
    starts      0      7 0 2                a document that goes on starts anew, at 0

Nothing is copied to do so: where a sequence lies follows from the sums of the documents' lengths.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.data.batch import IGNORE
from penstock.data.corpus import Corpus, Longs


class TokenSpan(NamedTuple):
    """Some consecutive tokens of one document."""

    document: int
    start: int
    stop: int


class PackedRow(NamedTuple):
    """One sequence."""

    tokens: Longs
    labels: Longs
    documents: tuple[int, ...]
    """Where its documents start; the first one at 0."""


@dataclass(frozen=True, eq=False)
class PackedDocuments:
    """Documents in an order, and the sequences that they are cut into."""

    documents: Longs
    ends: Longs
    """Tokens up to the end of each document, in that order."""
    length: int

    @property
    def count(self) -> int:
        """Whole sequences."""
        return int(self.ends[-1]) // self.length

    def spans(self, sequence: int) -> Iterator[TokenSpan]:
        """What a sequence is made of."""
        at = sequence * self.length
        stop = at + self.length
        place = int(np.searchsorted(self.ends, at, side="right"))
        while at < stop:
            begin = int(self.ends[place - 1]) if place else 0
            end = min(int(self.ends[place]), stop)
            yield TokenSpan(int(self.documents[place]), at - begin, end - begin)
            at = end
            place += 1


def pack_documents(corpus: Corpus, documents: Longs, length: int) -> PackedDocuments:
    """These documents, in this order, cut into sequences."""
    return PackedDocuments(documents, np.cumsum(corpus.lengths[documents]), length)


def row(corpus: Corpus, packed: PackedDocuments, sequence: int) -> PackedRow:
    """The tokens of a sequence and, for each, the token that follows it in its document."""
    tokens = np.empty(packed.length, dtype=np.int64)
    labels = np.full(packed.length, IGNORE, dtype=np.int64)
    starts: list[int] = []
    at = 0
    for span in packed.spans(sequence):
        following = min(span.stop + 1, int(corpus.lengths[span.document]))
        place = slice(at, at + span.stop - span.start)
        fill_span(corpus, span, following, tokens[place], labels[place])
        starts.append(at)
        at = place.stop
    return PackedRow(tokens, labels, tuple(starts))


def fill_span(
    corpus: Corpus, span: TokenSpan, following: int, tokens: Longs, labels: Longs
) -> None:
    """Put the tokens of a span, and for each the next one if that counts, into their places;
    `following` is the end of what may be a label."""
    document, start, stop = span
    read = corpus.tokens(document, start, following)
    tokens[:] = read[: stop - start]
    counted = corpus.counted(document, start + 1, following)
    labels[: len(read) - 1] = read[1:] if counted is None else np.where(counted, read[1:], IGNORE)
