"""How the queries of a slice are divided among the members of a gang.

Query i of a slice (from 0) that has P tokens before it sees P + i + 1 keys, so x queries from the
beginning see P x + x (x + 1) / 2. Members get equal parts of what the whole slice sees:

    keys      past            slice
    query 0   ################.
    query 1   ################..          who helps
    query 2   ################...         -------------
    query 3   ################....        at home

The member at home has the last ones: it alone has every key already. Documents are not looked at.
"""

from math import isqrt


def share_of_queries(past: int, tokens: int, number: int, members: int) -> range:
    """Positions of the queries of one share; of few tokens some have none, but the last one has.

    >>> [len(share_of_queries(0, 100, number, 3)) for number in range(3)]
    [57, 24, 19]
    >>> [share_of_queries(400, 100, number, 2) for number in range(2)]
    [range(400, 452), range(452, 500)]
    """
    first, end = (_cut(past, tokens, part, members) for part in (number, number + 1))
    return range(past + first, past + end)


def _cut(past: int, tokens: int, part: int, members: int) -> int:
    """The most queries that see no more than so many parts of all that the slice sees."""
    twice = 2 * past + 1
    seen = tokens * (twice + tokens) // 2
    return (isqrt(twice * twice + 8 * (part * seen // members)) - twice) // 2
