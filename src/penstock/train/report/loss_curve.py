"""The loss of a run as a picture of letters, for the report at its end."""

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
"""From empty to full, in eighths of a row."""
EIGHTHS = len(BLOCKS) - 1


def curve(losses: Sequence[float], *, width: int = 60, height: int = 6) -> str:
    """Losses as columns over the steps; each column is the mean of its steps.

    The lowest loss has an eighth of a row, the highest fills all rows. Losses that are not finite
    leave a gap.
    """
    means = bin_means(losses, width)
    finite = [value for value in means if math.isfinite(value)]
    if not finite:
        return "no loss to draw\n"
    low, high = min(finite), max(finite)
    heights = [_eighths(value, low, high, height) for value in means]
    labels = {height - 1: f"{high:.3f}", 0: f"{low:.3f}"}
    margin = max(map(len, labels.values()))
    rows = [
        f"{labels.get(row, ''):>{margin}} {_row(heights, row)}".rstrip()
        for row in reversed(range(height))
    ]
    return "\n".join([*rows, f"{'':>{margin}} {_axis(len(losses), len(means))}"]) + "\n"


def bin_means(values: Sequence[float], count: int) -> list[float]:
    """At most `count` means of neighbouring values, each of as many as can be equal.

    >>> bin_means([4.0, 2.0, 3.0, 1.0], 2)
    [3.0, 2.0]
    """
    count = min(count, len(values))
    edges = [len(values) * part // count for part in range(count + 1)] if count else [0]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges)]


def _eighths(value: float, low: float, high: float, rows: int) -> int:
    """Height of a column; 0 where there is no value."""
    if not math.isfinite(value):
        return 0
    share = (value - low) / (high - low) if high > low else 0.0
    return 1 + round(share * (rows * EIGHTHS - 1))


def _row(heights: Sequence[int], row: int) -> str:
    return "".join(BLOCKS[min(max(height - row * EIGHTHS, 0), EIGHTHS)] for height in heights)


def _axis(steps: int, width: int) -> str:
    """First and last step under the columns."""
    last = str(steps)
    return f"1{last:>{width - 1}}" if width > len(last) + 1 else last
