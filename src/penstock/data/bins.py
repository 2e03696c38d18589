"""Documents into bins of one capacity: as few as a quick rule finds."""

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np

from penstock.data.corpus import Longs


def best_fit(lengths: Sequence[int] | Longs, capacity: int) -> list[list[int]]:
    """Numbers of items in bins of that capacity: best fit, in decreasing order.

    >>> best_fit([5, 3, 6, 2], 8)
    [[2, 3], [0, 1]]
    """
    sizes = np.asarray(lengths)
    bins: list[list[int]] = []
    free: list[int] = []
    open_bins: dict[int, list[int]] = {}
    for item in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[item])
        at = bisect_left(free, size)
        if at == len(free):
            number, room = len(bins), capacity
            bins.append([])
        else:
            room = free[at]
            number = open_bins[room].pop()
            if not open_bins[room]:
                del open_bins[room], free[at]
        bins[number].append(item)
        if room > size:
            if room - size not in open_bins:
                insort(free, room - size)
            open_bins.setdefault(room - size, []).append(number)
    return bins
