"""Sequences of whole documents: one each, or as many as fit.

    documents   aaaaa  bbb  cccccc  dd        of at most 8 tokens
    whole       aaaaabbb  ccccccdd            as many as fit; what is left is padding
    single      aaaaa---  bbb-----  ...       one each

A document that is longer than a sequence has no place. It is refused, or, where the settings say
so, left out, truncated or divided; what is lost is counted, and the longest one is named.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.data.batch import IGNORE
from penstock.data.bins import best_fit
from penstock.data.corpus import Corpus, Longs
from penstock.data.packing import PackedRow, TokenSpan, fill_span
from penstock.errors import ShapeError

PADDING = 0
"""Token of a place that holds nothing; any would do, since no document sees it."""


class DocumentSpans(NamedTuple):
    """Parts of documents that have a place in a sequence."""

    spans: tuple[Longs, Longs, Longs]
    """Document, first token and end of each."""
    notes: tuple[str, ...]
    """What a person should be told: documents that are not whole."""

    @property
    def lengths(self) -> Longs:
        return self.spans[2] - self.spans[1]


def fit_documents(corpus: Corpus, documents: Longs, length: int, longer: str) -> DocumentSpans:
    """The documents, with what `longer` says done to those of more than `length` tokens."""
    lengths = corpus.lengths[documents]
    over = lengths > length
    if not over.any():
        return DocumentSpans((documents, np.zeros_like(lengths), lengths), ())
    longest = int(documents[np.argmax(lengths)])
    worst = f"{corpus.place(longest)} is the longest with {int(lengths.max()):,} tokens"
    some = f"{int(over.sum()):,} of {len(documents):,} documents have more than {length:,} tokens"
    if longer == "refuse":
        raise ShapeError(
            f"{some}; {worst}",
            hint='raise batch.length, or say with data.longer what to do: "drop", "truncate" or '
            '"split" them, or set data.packing to "cut"',
        )
    spans = _WAYS[longer](documents, lengths, length)
    lost = int(lengths.sum() - (spans[2] - spans[1]).sum())
    return DocumentSpans(spans, (f"{some} and are {_DONE[longer].format(lost=lost)}; {worst}",))


def _dropped(documents: Longs, lengths: Longs, length: int) -> tuple[Longs, Longs, Longs]:
    kept = lengths <= length
    return documents[kept], np.zeros(int(kept.sum()), dtype=np.int64), lengths[kept]


def _truncated(documents: Longs, lengths: Longs, length: int) -> tuple[Longs, Longs, Longs]:
    return documents, np.zeros_like(lengths), np.minimum(lengths, length)


def _split(documents: Longs, lengths: Longs, length: int) -> tuple[Longs, Longs, Longs]:
    parts = -(-lengths // length)
    first = np.repeat(np.cumsum(parts) - parts, parts)
    starts = (np.arange(int(parts.sum())) - first) * length
    ends = np.minimum(starts + length, np.repeat(lengths, parts))
    return np.repeat(documents, parts), starts, ends


_WAYS = {"drop": _dropped, "truncate": _truncated, "split": _split}
_DONE = {
    "drop": "left out, {lost:,} tokens",
    "truncate": "truncated, {lost:,} tokens are left out",
    "split": "divided into sequences of their own",
}


@dataclass(frozen=True, eq=False)
class WholeSequences:
    """Spans, and which of them are together in a sequence."""

    spans: tuple[Longs, Longs, Longs]
    order: Longs
    """The spans, those of one sequence next to each other."""
    bounds: Longs
    """Where in `order` each sequence begins, and the end."""
    length: int

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    def parts(self, sequence: int) -> list[TokenSpan]:
        """What a sequence is made of."""
        places = self.order[int(self.bounds[sequence]) : int(self.bounds[sequence + 1])]
        columns = (column[places].tolist() for column in self.spans)
        return [TokenSpan(*one) for one in zip(*columns)]

    @property
    def lengths(self) -> Longs:
        """Tokens of each sequence, without padding."""
        sizes = (self.spans[2] - self.spans[1])[self.order]
        return np.add.reduceat(sizes, self.bounds[:-1]) if len(sizes) else sizes


def single_sequences(found: DocumentSpans, length: int) -> WholeSequences:
    """Every span alone."""
    count = len(found.lengths)
    return WholeSequences(found.spans, np.arange(count), np.arange(count + 1), length)


def packed_sequences(found: DocumentSpans, length: int) -> WholeSequences:
    """As many spans in a sequence as fit: the longest first, each to where it leaves least."""
    bins = best_fit(found.lengths, length)
    order = np.array([span for spans in bins for span in spans], dtype=np.int64)
    bounds = np.cumsum([0, *map(len, bins)])
    return WholeSequences(found.spans, order, bounds, length)


def whole_row(corpus: Corpus, sequences: WholeSequences, sequence: int, length: int) -> PackedRow:
    """A sequence with padding up to `length`; the padding is a document without labels."""
    tokens = np.full(length, PADDING, dtype=np.int64)
    labels = np.full(length, IGNORE, dtype=np.int64)
    starts: list[int] = []
    at = 0
    for span in sequences.parts(sequence):
        place = slice(at, at + span.stop - span.start)
        following = min(span.stop + 1, int(corpus.lengths[span.document]))
        fill_span(corpus, span, following, tokens[place], labels[place])
        starts.append(at)
        at = place.stop
    return PackedRow(tokens, labels, (*starts, at) if at < length else tuple(starts))
