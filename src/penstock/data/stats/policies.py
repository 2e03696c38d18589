"""What each policy makes of a corpus: microbatches, padding and work, batch by batch.

Nothing is tokenised or trained for it: lengths are enough. A policy gives units, each of which is
one forward and backward (a sequence, or a slice), in batches of as many tokens as asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    pairs: NDArray[np.float64]
    """Pairs of a query and a key of each: what attention works on."""


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


def triangle(lengths: Longs) -> NDArray[np.float64]:
    """Pairs of a query with itself and all before it."""
    sizes = lengths.astype(np.float64)
    return sizes * (sizes + 1) / 2


def all_outcomes(lengths: Longs, rule: BatchRule) -> list[PolicyOutcome]:
    """What every policy makes of documents in this order; none is longer than a sequence."""
    return [_outcome(name, make, lengths, rule) for name, make in _POLICIES.items()]


Made = Iterator[tuple[int, Units]]
"""Documents, or parts of them, of a batch, and its units."""


def _outcome(
    name: str, make: Callable[[Longs, BatchRule], Made], lengths: Longs, rule: BatchRule
) -> PolicyOutcome:
    found = [batch for batch, _ in zip(make(lengths, rule), range(MOST_BATCHES))]
    units = tuple(each for _, each in found)
    tokens, padding = (sum(int(each[at].sum()) for each in units) for at in (0, 1))
    return PolicyOutcome(
        name,
        len(units),
        sum(documents for documents, _ in found) / len(units),
        sum(len(each.tokens) for each in units) / len(units),
        tokens / len(units),
        padding / (tokens + padding),
        _cut(name, lengths, rule),
        max(int((each.tokens + each.padding).max()) for each in units),
        units,
    )


def _cut(name: str, lengths: Longs, rule: BatchRule) -> int:
    if name == "pack, cut":
        ends = np.cumsum(lengths)
        return int(((ends - 1) // rule.length > (ends - lengths) // rule.length).sum())
    return 0


def _pack_cut(lengths: Longs, rule: BatchRule) -> Made:
    """Documents end to end, cut into sequences; those too few for a batch are left."""
    ends = np.cumsum(lengths)
    count = max(int(ends[-1]) // rule.length, 1)
    edges = np.union1d(ends, np.arange(1, count + 1) * rule.length)
    edges = edges[edges <= count * rule.length]
    pieces = np.diff(edges, prepend=0)
    sequence = (edges - 1) // rule.length
    pairs = np.bincount(sequence, triangle(pieces), count).astype(np.float64)
    parts = np.bincount(sequence, minlength=count)
    tokens = np.bincount(sequence, pieces, count).astype(np.int64)
    for some in _groups(np.full(count, rule.length), rule.tokens):
        yield int(parts[some].sum()), Units(tokens[some], rule.length - tokens[some], pairs[some])


def _padded(bins: Sequence[Sequence[int]], lengths: Longs, rule: BatchRule) -> Made:
    tokens = np.array([int(lengths[items].sum()) for items in map(list, bins)])
    padding = rule.length - tokens
    pairs = np.array([triangle(lengths[items]).sum() for items in map(list, bins)])
    pairs += triangle(padding)
    for some in _groups(np.full(len(bins), rule.length), rule.tokens):
        documents = sum(len(bins[at]) for at in some.tolist())
        yield documents, Units(tokens[some], padding[some], pairs[some])


def _pack_whole(lengths: Longs, rule: BatchRule) -> Made:
    """Whole documents, as many in a sequence as fit; enough of them for the batches looked at."""
    enough = int(np.searchsorted(np.cumsum(lengths), 2 * MOST_BATCHES * rule.tokens)) + 1
    bins = best_fit(lengths[:enough], rule.length)
    return _padded([bins[at] for at in shuffle(len(bins), 0)], lengths, rule)


def _pack_single(lengths: Longs, rule: BatchRule) -> Made:
    some = min(len(lengths), MOST_BATCHES * -(-rule.tokens // rule.length))
    return _padded([[number] for number in range(some)], lengths, rule)


def _chunk(lengths: Longs, rule: BatchRule) -> Made:
    """Long documents in slices, short ones together in a slice; nothing is padded."""
    size = rule.slice_tokens
    for some in _groups(lengths, rule.tokens):
        of_batch = lengths[some]
        short = of_batch[of_batch <= size]
        bins = [short[items] for items in map(list, best_fit(short, size))]
        tokens = [np.array([int(each.sum()) for each in bins], dtype=np.int64)]
        pairs = [np.array([triangle(each).sum() for each in bins])]
        for length in of_batch[of_batch > size].tolist():
            ends = np.minimum(np.arange(size, length + size, size), length)
            tokens.append(np.diff(ends, prepend=0))
            pairs.append(np.diff(triangle(ends), prepend=0))
        whole = np.concatenate(tokens)
        yield len(of_batch), Units(whole, np.zeros_like(whole), np.concatenate(pairs))


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


_POLICIES: dict[str, Callable[[Longs, BatchRule], Made]] = {
    "pack, cut": _pack_cut,
    "pack, whole": _pack_whole,
    "pack, single": _pack_single,
    "chunk": _chunk,
}
