"""What a slice has to compute, as triangles and rectangles; also where a query sees the last keys
of a window only.

The keys in a window lie between two diagonals. Under the lower one is the triangle that kernels
know; above the upper one the same triangle upside down, for which queries and keys are given to a
kernel in reverse order.

    keys        0 1 2 3 4 5 6 7        window 3
    query 4         m r c . . .        c   triangle: keys up to the query's own
    query 5           m r c . .        m   mirrored: keys from the query's first one on
    ...                                r   rectangle between them

Places are those of keys: a query stands at the place of its own key.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from penstock.model.attention.reach import AttentionPart, Reach, shift, triangle_parts


class Seen(NamedTuple):
    """Some queries against some keys, by places."""

    queries: range
    keys: range
    causal: bool = False
    mirrored: bool = False


@lru_cache(maxsize=4096)
def parts(reach: Reach, square: int) -> tuple[AttentionPart, ...]:
    """The shapes to compute, in an order in which every query is fresh once.

    A triangle of more than `square` queries is cut into two and the rectangle between them, because
    a kernel may compute more of a large triangle than lies under its diagonal.

    >>> for part in parts(Reach(3, (2, 2)), square=1)[:4]: print(*part[:4])
    range(0, 2) range(0, 3) False True
    range(0, 1) range(3, 4) True False
    range(1, 2) range(4, 5) True False
    range(1, 2) range(3, 4) False False
    """
    found: list[AttentionPart] = []
    start = 0
    for length in reach.lengths:
        past = reach.past if start == 0 else 0
        queries = range(start, start + length)
        if reach.window is None:
            if past:
                found.append(AttentionPart(queries, range(past), causal=False, fresh=True))
            found += triangle_parts(queries, reach.past, square, past == 0)
        else:
            places = shift(queries, reach.past)
            seen = (
                *window_triangle(places, reach.window, square),
                *window_rectangle(places, range(past), reach.window, square),
            )
            found += (as_part(each, -reach.past, 0) for each in seen)
        start += length
    return tuple(found)


def as_part(seen: Seen, queries: int, keys: int) -> AttentionPart:
    """The part, where queries and keys are found by adding these numbers to their places. A query
    is fresh in its triangle, which comes first."""
    return AttentionPart(
        shift(seen.queries, queries),
        shift(seen.keys, keys),
        seen.causal,
        seen.causal,
        seen.mirrored,
    )


def window_triangle(places: range, window: int, square: int) -> Iterator[Seen]:
    """What queries see of the keys at their own places; every query is in one triangle.

    >>> for each in window_triangle(range(4), window=2, square=9): print(*each[:2], each.mirrored)
    range(0, 2) range(0, 2) False
    range(2, 4) range(2, 4) False
    range(2, 3) range(1, 2) False
    """
    step = min(square, window)
    for start in range(places.start, places.stop, step):
        here = range(start, min(start + step, places.stop))
        yield Seen(here, here, causal=True)
    for start in range(places.start + step, places.stop, step):
        here = range(start, min(start + step, places.stop))
        before = range(max(places.start, start - window + 1), start)
        yield from window_rectangle(here, before, window, square)


def window_rectangle(queries: range, keys: range, window: int, square: int) -> Iterator[Seen]:
    """What queries see of keys that lie before all of them.

    >>> for each in window_rectangle(range(4, 7), range(4), window=4, square=9): print(*each[:2])
    range(4, 7) range(1, 4)
    """
    if not keys:
        return
    # Queries before the first of these places see all keys, those from the second on see none.
    begin, end = keys.start + window - 1, keys.stop + window - 1
    if whole := range(queries.start, min(queries.stop, begin)):
        yield Seen(whole, keys)
    some = range(max(queries.start, begin), min(queries.stop, end))
    if len(some) == 1:
        yield Seen(some, range(some.start - window + 1, keys.stop))
    elif some:
        own = shift(some, 1 - window)
        yield from _mirrored(some, own, square)
        if rest := range(own.stop, keys.stop):
            yield Seen(some, rest)


def _mirrored(queries: range, keys: range, square: int) -> Iterator[Seen]:
    """A triangle upside down, cut like the others."""
    if len(queries) <= square:
        yield Seen(queries, keys, mirrored=True)
        return
    middle = len(queries) // 2
    yield from _mirrored(queries[:middle], keys[:middle], square)
    yield Seen(queries[:middle], keys[middle:])
    yield from _mirrored(queries[middle:], keys[middle:], square)
