"""One transfer of a process at a time is between the launches of its two ends.

A transfer whose one end is launched spins on its GPU until the other end is. Freeing memory waits
for all that was launched, and keeps every other thread of its process from launching meanwhile. So
two ranks that have each launched one end of two different transfers, and then free memory, wait for
each other for ever:

    rank 0   launches its end of 7     frees memory: waits for 7, and cannot launch 8
    rank 1   launches its end of 8     frees memory: waits for 8, and cannot launch 7

Therefore a process begins no launch before the one before it has been answered:

    lower rank    takes its window, says go, launches, hears of the other launch, gives it back
    higher rank   hears go, takes its window, launches, says so, gives it back

A rank that holds its window waits only for a higher one, and the highest waits for nobody. What
waits in a lower rank's memory for a launch is that of one transfer, whose other end is free to
launch; so the circle above cannot close, whoever frees what and when.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class LaunchWindow:
    """Shared by all ends of transfers in a process."""

    def __init__(self) -> None:
        self._held = Lock()

    @contextmanager
    def between(
        self, tell: Callable[[], None], hear: Callable[[], None], *, lower: bool
    ) -> Iterator[None]:
        """Around the launch of one end. `tell` and `hear` exchange one message with the other."""
        if lower:
            with self._held:
                tell()
                yield
                hear()
        else:
            hear()
            with self._held:
                yield
            tell()
