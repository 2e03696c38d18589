"""Which tokens of a slice each rank of a ring has, and what its queries see of another's keys.

Under a causal mask late queries see more keys than early ones, so equal consecutive parts would be
unequal work. A slice is cut into two chunks per rank, and rank r of R has chunks r and 2R - 1 - r:
one early and one late, together the same for all.

    chunks   0  1  2  3  4  5        rank 0 has 0 and 5, rank 1 has 1 and 4, rank 2 has 2 and 3

A rank keeps its keys of all slices one behind the other, so they lie in the order of their
positions, with gaps. What a range of queries sees of them is one run: those from the beginning of
its first document up to the range, and where the keys are the rank's own, the range itself.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from penstock.model.attention.reach import AttentionPart, Reach, reach_of
from penstock.model.attention.window_parts import (
    as_part,
    parts,
    window_rectangle,
    window_triangle,
)

Ranges = tuple[range, ...]
"""Positions in a sequence, ascending."""


def zigzag_ranges(start: int, end: int, index: int, of: int) -> Ranges:
    """The positions of a slice that one of `of` ranks has; chunks that touch are one range.

    >>> [zigzag_ranges(0, 12, index, of=3) for index in range(3)]
    [(range(0, 2), range(10, 12)), (range(2, 4), range(8, 10)), (range(4, 8),)]
    >>> zigzag_ranges(5, 9, 0, of=1)
    (range(5, 9),)
    """
    early, late = (_chunk(start, end, number, 2 * of) for number in (index, 2 * of - 1 - index))
    if early.stop == late.start:
        early, late = range(early.start, late.stop), late[:0]
    return tuple(chunk for chunk in (early, late) if chunk)


def _chunk(start: int, end: int, number: int, chunks: int) -> range:
    tokens = end - start
    return range(start + tokens * number // chunks, start + tokens * (number + 1) // chunks)


def count(ranges: Ranges) -> int:
    """How many positions there are."""
    return sum(map(len, ranges))


def ring_parts(
    queries: Ranges, keys: Ranges, documents: Sequence[int], square: int
) -> Iterator[AttentionPart]:
    """What to compute of these queries against these keys; both count from their first.

    Each range of queries is one of the ranges of keys, or lies between them. Against keys that have
    the queries too, every query is fresh once; against others, none is.

    >>> queries, keys = (zigzag_ranges(0, 8, index, of=2) for index in range(2))
    >>> queries, keys
    ((range(0, 2), range(6, 8)), (range(2, 6),))
    >>> for part in ring_parts(queries, keys, (0, 3), 128): print(*part[:4])
    range(2, 4) range(1, 4) False False
    """
    first = 0
    for span in queries:
        reach = reach_of(span.start, span.stop, documents)
        begin, end = (_before(keys, place) for place in (span.start - reach.past, span.start))
        if span in keys:
            for part in parts(Reach(end - begin, reach.lengths), square):
                yield _shifted(part, first, begin)
        elif begin < end:
            here = range(first, first + reach.lengths[0])
            yield AttentionPart(here, range(begin, end), causal=False, fresh=False)
        first += len(span)


def ring_window_parts(
    queries: Ranges, keys: Ranges, documents: Sequence[int], window: int, square: int
) -> Iterator[AttentionPart]:
    """The same where a query sees the last keys of a window only: keys have gaps, so each of their
    ranges is met by itself."""
    first = 0
    for span in queries:
        reach = reach_of(span.start, span.stop, documents, window)
        reached = range(span.start - reach.past, span.start)
        for place, begin in zip(keys, accumulate(map(len, keys), initial=0)):
            if place == span:  # in front of the others: there its queries are fresh
                for one in _documents_in(span, reach.lengths):
                    for each in window_triangle(one, window, square):
                        yield as_part(each, first - span.start, begin - span.start)
        for place, begin in zip(keys, accumulate(map(len, keys), initial=0)):
            near = range(max(place.start, reached.start), min(place.stop, reached.stop))
            for each in window_rectangle(span[: reach.lengths[0]], near, window, square):
                yield as_part(each, first - span.start, begin - place.start)
        first += len(span)


def _documents_in(span: range, lengths: Sequence[int]) -> Iterator[range]:
    """The documents of a range, by their lengths in it."""
    start = span.start
    for length in lengths:
        yield range(start, start + length)
        start += length


def _before(ranges: Ranges, position: int) -> int:
    """How many of the positions lie before that one."""
    return sum(min(max(position - span.start, 0), len(span)) for span in ranges)


def _shifted(part: AttentionPart, queries: int, keys: int) -> AttentionPart:
    """The part as it is where this many queries and keys come before it."""
    return part._replace(
        queries=range(part.queries.start + queries, part.queries.stop + queries),
        keys=range(part.keys.start + keys, part.keys.stop + keys),
    )
