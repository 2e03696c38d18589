"""What each way to pack makes of a corpus: sequences and padding, batch by batch.

Nothing is tokenised or trained for it: lengths are enough. A policy gives units, each of which is
one forward and backward (a sequence, a slice, or a microbatch of groups), in batches of as many
tokens as asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.data.bins import best_fit
from penstock.data.corpus import Longs
from penstock.data.order import shuffle

MOST_BATCHES = 256
"""Batches of the data that are looked at."""


class Units(NamedTuple):
    """The forwards of one batch."""

    tokens: Longs
    """Tokens of each, without padding."""
    padding: Longs
    documents: tuple[Longs, ...]
    """Tokens of each document, or part of one, of each."""


class BatchRule(NamedTuple):
    """What a batch is to be."""

    length: int
    """Tokens of a sequence at most."""
    tokens: int
    """Tokens of a global batch."""
    slice_tokens: int
    """Tokens of a slice at most, where sequences are cut into slices."""


@dataclass(frozen=True)
class PolicyOutcome:
    """A policy over some batches; numbers are means over them."""

    name: str
    batches: int
    documents: float
    """Documents, or parts of them, of a batch."""
    units: float
    """Forwards of a batch."""
    tokens: float
    """Tokens of a batch, padding apart."""
    padding: float
    """Share of all places that is padding."""
    cut: int
    """Documents that are cut, of all."""
    largest: int
    """Most tokens of a unit, padding included."""
    made: tuple[Units, ...]


def packed_outcomes(lengths: Longs, rule: BatchRule) -> list[PolicyOutcome]:
    """What every way to pack makes of documents in this order; none is longer than a sequence. A
    way that makes no sequence of them is left out."""
    found = []
    for name, make in _WAYS.items():
        units = tuple(batch for batch, _ in zip(make(lengths, rule), range(MOST_BATCHES)))
        if not units:
            continue
        cut = _cut(lengths, rule) if name == CUT_WAY else 0
        found.append(outcome_of(name, units, cut))
    return found


def outcome_of(name: str, made: Sequence[Units], cut: int = 0) -> PolicyOutcome:
    """The means of some batches."""
    count = len(made)
    tokens = sum(int(each.tokens.sum()) for each in made)
    padding = sum(int(each.padding.sum()) for each in made)
    return PolicyOutcome(
        name,
        count,
        sum(len(documents) for each in made for documents in each.documents) / count,
        sum(len(each.tokens) for each in made) / count,
        tokens / count,
        padding / (tokens + padding),
        cut,
        max(int((each.tokens + each.padding).max()) for each in made),
        tuple(made),
    )


def batches_of_documents(lengths: Longs, tokens: int) -> Iterator[Longs]:
    """Documents of one batch after the other, of at most so many tokens, one or more in each."""
    return (lengths[some] for some in _groups(lengths, tokens))


def _cut(lengths: Longs, rule: BatchRule) -> int:
    """Documents that lie over the end of a sequence."""
    ends = np.cumsum(lengths)
    return int(((ends - 1) // rule.length > (ends - lengths) // rule.length).sum())


def _pack_cut(lengths: Longs, rule: BatchRule) -> Iterator[Units]:
    """Documents end to end, cut into sequences; those too few for a batch are left, and so are
    tokens too few for a sequence."""
    ends = np.cumsum(lengths)
    count = int(ends[-1]) // rule.length
    if not count:
        return
    edges = np.union1d(ends, np.arange(1, count + 1) * rule.length)
    edges = edges[edges <= count * rule.length]
    pieces = np.diff(edges, prepend=0)
    last = np.searchsorted(edges, np.arange(1, count) * rule.length, side="right")
    sequences = np.split(pieces, last)
    for some in _groups(np.full(count, rule.length), rule.tokens):
        yield _padded([sequences[at] for at in some.tolist()], rule)


def _padded(documents: Sequence[Longs], rule: BatchRule) -> Units:
    """Sequences of these documents, each as long as all."""
    tokens = np.array([int(each.sum()) for each in documents])
    return Units(tokens, rule.length - tokens, tuple(documents))


def _pack_bins(bins: Sequence[Sequence[int]], lengths: Longs, rule: BatchRule) -> Iterator[Units]:
    for some in _groups(np.full(len(bins), rule.length), rule.tokens):
        yield _padded([lengths[list(bins[at])] for at in some.tolist()], rule)


def _pack_whole(lengths: Longs, rule: BatchRule) -> Iterator[Units]:
    """Whole documents, as many in a sequence as fit; enough of them for the batches looked at."""
    enough = int(np.searchsorted(np.cumsum(lengths), 2 * MOST_BATCHES * rule.tokens)) + 1
    bins = best_fit(lengths[:enough], rule.length)
    return _pack_bins([bins[at] for at in shuffle(len(bins), 0)], lengths, rule)


def _pack_single(lengths: Longs, rule: BatchRule) -> Iterator[Units]:
    some = min(len(lengths), MOST_BATCHES * -(-rule.tokens // rule.length))
    return _pack_bins([[number] for number in range(some)], lengths, rule)


def _groups(sizes: Longs, most: int) -> Iterator[Longs]:
    """Consecutive items whose sizes add up to at most so much, at least one in each; a last group
    that is not full is left out, unless it is the only one."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        if last == len(sizes) and int(ends[-1]) - before < most and first:
            return
        yield np.arange(first, last)
        first = last


CUT_WAY = "pack, cut"
_WAYS: dict[str, Callable[[Longs, BatchRule], Iterator[Units]]] = {
    CUT_WAY: _pack_cut,
    "pack, whole": _pack_whole,
    "pack, single": _pack_single,
}
