"""Which keys the queries of a slice may see, as ranges.

A query sees the keys of its own document up to itself. Of the documents that lie in a slice only
the first can have begun in an earlier one, so a slice reaches back over one run of keys:

    keys      . . . [ past of document a ][ a a a | b b | c c c c ]
    queries                               [ a a a | b b | c c c c ]     lengths 3, 2, 4

A kernel knows two shapes, the triangle under a diagonal and the full rectangle. Everything a slice
has to compute is a list of them. Where a query sees only the last keys of a window, the list is in
window_parts.py.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple


class Reach(NamedTuple):
    """What one sequence's queries in a slice see."""

    past: int
    """Keys before the slice that its first document has."""
    lengths: tuple[int, ...]
    """Tokens of each document inside the slice."""
    window: int | None = None
    """Keys that a query sees at most, its own included; None: all of its document."""


class AttentionPart(NamedTuple):
    """Some queries of a slice against some keys; keys count from the first one in reach."""

    queries: range
    keys: range
    causal: bool
    """Whether it is the triangle in which each query sees the keys up to its own."""
    fresh: bool
    """Whether no part before this one has these queries."""
    mirrored: bool = False
    """Whether it is the triangle in which each query sees the keys from its own place on."""


def reach_of(start: int, end: int, documents: Sequence[int], window: int | None = None) -> Reach:
    """What positions start..end reach when documents begin at these sorted positions, and a query
    sees no more keys than a window has.

    >>> reach_of(8, 16, (0, 5, 11, 13))
    Reach(past=3, lengths=(3, 2, 3), window=None)
    >>> reach_of(8, 16, (0, 8))
    Reach(past=0, lengths=(8,), window=None)
    >>> reach_of(8, 16, (0,), window=4)
    Reach(past=3, lengths=(8,), window=4)
    """
    after = bisect_right(documents, start)
    cuts = (start, *documents[after : bisect_left(documents, end)], end)
    lengths = tuple(stop - begin for begin, stop in pairwise(cuts))
    past = start - documents[after - 1]
    return Reach(past if window is None else min(past, window - 1), lengths, window)


def triangle_parts(
    queries: range, offset: int, square: int, fresh: bool
) -> Iterator[AttentionPart]:
    """The parts under the diagonal; the key of a query lies `offset` after it."""
    if len(queries) <= square:
        yield AttentionPart(queries, shift(queries, offset), causal=True, fresh=fresh)
        return
    middle = square << (((len(queries) - 1) // square).bit_length() - 1)
    upper, lower = queries[:middle], queries[middle:]
    yield from triangle_parts(upper, offset, square, fresh)
    yield from triangle_parts(lower, offset, square, fresh)
    yield AttentionPart(lower, shift(upper, offset), causal=False, fresh=False)


def shift(span: range, offset: int) -> range:
    return range(span.start + offset, span.stop + offset)
