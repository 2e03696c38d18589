"""The pattern that most schedules share: a stream of forwards and a stream of backwards, merged.

A paper defines each device's order by saying which forward comes j-th, which backward comes j-th,
and how many forwards run before the first backward. `alternate` is the rest.
"""

from collections.abc import Sequence
from typing import Any


def alternate(forwards: Sequence[Any], backwards: Sequence[Any], warmup: int) -> list[Any]:
    """`warmup` forwards, then one forward and one backward in turn, then the other backwards."""
    warmup = min(warmup, len(forwards))
    lane = list(forwards[:warmup])
    for forward, backward in zip(forwards[warmup:], backwards):
        lane += (forward, backward)
    return lane + list(backwards[len(forwards) - warmup :])
