"""Which keys the queries of a slice may see, as ranges.

A query sees the keys of its own document up to itself. Of the documents that lie in a slice only
the first can have begun in an earlier one, so a slice reaches back over one run of keys:

    keys      . . . [ past of document a ][ a a a | b b | c c c c ]
    queries                               [ a a a | b b | c c c c ]     lengths 3, 2, 4

A kernel knows two shapes, the triangle under a diagonal and the full rectangle. Everything a slice
has to compute is a list of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple


class Reach(NamedTuple):
    """What one sequence's queries in a slice see."""

    past: int
    """Keys before the slice that its first document has."""
    lengths: tuple[int, ...]
    """Tokens of each document inside the slice."""


class AttentionPart(NamedTuple):
    """Some queries of a slice against some keys; keys count from the first one in reach."""

    queries: range
    keys: range
    causal: bool
    """Whether it is the triangle in which each query sees the keys up to its own."""
    fresh: bool
    """Whether no part before this one has these queries."""


def reach_of(start: int, end: int, documents: Sequence[int]) -> Reach:
    """What positions start..end reach when documents begin at these sorted positions.

    >>> reach_of(8, 16, (0, 5, 11, 13))
    Reach(past=3, lengths=(3, 2, 3))
    >>> reach_of(8, 16, (0, 8))
    Reach(past=0, lengths=(8,))
    """
    after = bisect_right(documents, start)
    cuts = (start, *documents[after : bisect_left(documents, end)], end)
    lengths = tuple(stop - begin for begin, stop in pairwise(cuts))
    return Reach(start - documents[after - 1], lengths)


@lru_cache(maxsize=4096)
def parts(reach: Reach, square: int) -> tuple[AttentionPart, ...]:
    """The shapes to compute, in an order in which every query is fresh once.

    A triangle of more than `square` queries is cut into two and the rectangle between them, because
    a kernel may compute more of a large triangle than lies under its diagonal.

    >>> for part in parts(Reach(3, (2, 2)), square=1)[:4]: print(*part)
    range(0, 2) range(0, 3) False True
    range(0, 1) range(3, 4) True False
    range(1, 2) range(4, 5) True False
    range(1, 2) range(3, 4) False False
    """
    found: list[AttentionPart] = []
    start = 0
    for length in reach.lengths:
        past = reach.past if start == 0 else 0
        if past:
            found.append(AttentionPart(range(length), range(past), causal=False, fresh=True))
        fresh = past == 0
        found += _triangle(range(start, start + length), reach.past, square, fresh)
        start += length
    return tuple(found)


def _triangle(queries: range, offset: int, square: int, fresh: bool) -> Iterator[AttentionPart]:
    """The parts under the diagonal; the key of a query lies `offset` after it."""
    if len(queries) <= square:
        yield AttentionPart(queries, _shift(queries, offset), causal=True, fresh=fresh)
        return
    middle = square << (((len(queries) - 1) // square).bit_length() - 1)
    upper, lower = queries[:middle], queries[middle:]
    yield from _triangle(upper, offset, square, fresh)
    yield from _triangle(lower, offset, square, fresh)
    yield AttentionPart(lower, _shift(upper, offset), causal=False, fresh=False)


def _shift(span: range, offset: int) -> range:
    return range(span.start + offset, span.stop + offset)
