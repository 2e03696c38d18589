"""Many sequences as few buckets, so that a solver has fewer numbers to choose.

All sequences of a bucket count as long as its longest one, so memory is never underestimated. What
is counted too much is the error. With the lengths in ascending order the least error of the first k
in q buckets is

    error[k][q] = min over j < k of error[j][q - 1] + sum over j < i <= k of (s[k] - s[i])

    lengths 1 2 3 10 11 12 30 in 3 buckets:  {1 2 3} {10 11 12} {30}, error 2 + 1 + 2 + 1 = 6

Source: arXiv:2412.01523, section 4.3.
"""

from collections.abc import Callable, Sequence

import numpy as np

from penstock.errors import ShapeError

Buckets = list[tuple[int, ...]]
"""Lengths of each bucket in ascending order; shorter buckets first, none empty."""
Bucketing = Callable[[Sequence[int], int], Buckets]
USUAL_BUCKETS = 16


def least_error_buckets(lengths: Sequence[int], count: int) -> Buckets:
    """So many buckets, or as many as there are lengths, with the least error.

    >>> least_error_buckets([30, 1, 2, 3, 10, 11, 12], 3)
    [(1, 2, 3), (10, 11, 12), (30,)]
    """
    _refuse(lengths, count)
    ordered = np.sort(np.asarray(lengths, np.int64))
    sums = np.concatenate(([0], np.cumsum(ordered)))
    ends = np.arange(1, len(ordered) + 1)
    error = ends * ordered - sums[1:]
    starts = [np.zeros(len(ordered), np.int64)]
    for _ in range(1, min(count, len(ordered))):
        error, start = _one_more(ordered, sums, error)
        starts.append(start)
    return _cut(ordered, starts)


def _one_more(ordered: np.ndarray, sums: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, ...]:
    """Least errors with one more bucket, and where the last one starts."""
    least, start = error.copy(), np.zeros(len(ordered), np.int64)
    for last in range(1, len(ordered)):
        # The last bucket holds first..last, the others what is before.
        first = np.arange(1, last + 1)
        own = (last + 1 - first) * ordered[last] - (sums[last + 1] - sums[first])
        whole = error[first - 1] + own
        best = int(whole.argmin())
        if whole[best] < least[last]:
            least[last], start[last] = whole[best], first[best]
    return least, start


def _cut(ordered: np.ndarray, starts: Sequence[np.ndarray]) -> Buckets:
    """Buckets from the last to the first, by where each starts."""
    found: Buckets = []
    end, left = len(ordered), list(starts)
    while end:
        start = int(left.pop()[end - 1])
        if start or not left:
            found.append(tuple(ordered[start:end].tolist()))
            end = start
    return found[::-1]


def equal_width_buckets(lengths: Sequence[int], count: int) -> Buckets:
    """Lengths in ranges of one width, as far as there are any in them.

    >>> equal_width_buckets([1, 2, 3, 10, 11, 12, 30], 3)
    [(1, 2, 3, 10), (11, 12), (30,)]
    """
    _refuse(lengths, count)
    longest, found = max(lengths), dict[int, list[int]]()
    for length in sorted(lengths):
        found.setdefault((length * count - 1) // longest, []).append(length)
    return [tuple(found[number]) for number in sorted(found)]


def equal_lengths(lengths: Sequence[int], count: int) -> Buckets:
    """A bucket for each length, however many there are: nothing is counted too much."""
    _refuse(lengths, count)
    return [(length,) * list(lengths).count(length) for length in sorted(set(lengths))]


def error_of(buckets: Buckets) -> int:
    """Tokens that are counted too much."""
    return sum(bucket[-1] * len(bucket) - sum(bucket) for bucket in buckets)


def buckets_within(
    lengths: Sequence[int], room: int, bucketing: Bucketing = least_error_buckets
) -> Buckets:
    """The usual number of buckets, or more until their error takes at most half of what is left of
    the memory for `room` tokens."""
    count = USUAL_BUCKETS
    while count < len(set(lengths)):
        found = bucketing(lengths, count)
        if 2 * error_of(found) <= room - sum(lengths):
            return found
        count *= 2
    return equal_lengths(lengths, 1)


def _refuse(lengths: Sequence[int], count: int) -> None:
    if count < 1 or not lengths or min(lengths) < 1:
        raise ShapeError(
            f"{len(lengths)} sequences cannot be put into {count} buckets",
            hint="give at least one bucket, and one sequence of 1 token or more",
        )
