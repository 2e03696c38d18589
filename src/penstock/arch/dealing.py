"""How things are dealt out to ranks: as evenly as can be, in order, whatever divides.

Heads have a rule of their own, the same where ranks share matrices and where they share tokens.
Kernels want equally many query heads for each key/value head, so a rank gets

    whole groups        where there are at least as many key/value heads as ranks
    a part of one       otherwise: several ranks then hold the same key/value head

    4 query heads, 2 key/value heads     2 ranks: [q0 q1 k0] [q2 q3 k1]
                                         3 ranks: [q0 q1 k0] [q2 k1] [q3 k1]
"""

from typing import NamedTuple

from penstock.errors import ShapeError


def deal(count: int, index: int, of: int) -> range:
    """What rank `index` gets of `count` things.

    >>> [deal(7, index, 3) for index in range(3)]
    [range(0, 2), range(2, 4), range(4, 7)]
    """
    return range(count * index // of, count * (index + 1) // of)


def deal_sizes(count: int, of: int) -> tuple[int, ...]:
    """How many each rank gets.

    >>> deal_sizes(7, 3)
    (2, 2, 3)
    """
    return tuple(len(deal(count, index, of)) for index in range(of))


def most_tokens(length: int, slices: int, of: int) -> int:
    """Most tokens that one of `of` ranks can have of a sequence, however it is cut into slices.

    A slice is cut into 2R chunks, of which a rank has two (model/attention/zigzag.py). A chunk of
    n tokens has at most (n + 2R - 1) / 2R.

    >>> most_tokens(4096, slices=4, of=2)
    2054
    """
    return length if of == 1 else (length + (2 * of - 1) * slices) // of


class HeadShare(NamedTuple):
    """Heads of one rank."""

    queries: range
    keys: range
    """Key/value heads."""
    holders: range
    """Ranks that hold these key/value heads."""


def deal_heads(heads: int, kv_heads: int, index: int, of: int) -> HeadShare:
    """The heads of rank `index`.

    >>> deal_heads(4, 2, 2, 3)
    HeadShare(queries=range(3, 4), keys=range(1, 2), holders=range(1, 3))
    """
    group = heads // kv_heads
    if kv_heads >= of:
        keys = deal(kv_heads, index, of)
        return HeadShare(
            range(group * keys.start, group * keys.stop), keys, range(index, index + 1)
        )
    key = next(key for key in range(kv_heads) if index in deal(of, key, kv_heads))
    holders = deal(of, key, kv_heads)
    queries = deal(group, index - holders.start, len(holders))
    if not queries:
        raise ShapeError(
            f"{of} ranks cannot share {heads} heads of {kv_heads} key/value heads: rank {index} "
            "would have none",
            hint=f"take at most {kv_heads * group} ranks, or a number that divides the heads",
        )
    first = key * group
    return HeadShare(
        range(first + queries.start, first + queries.stop), range(key, key + 1), holders
    )
