"""One transfer or collective of a process at a time is between the launches of its ends.

A transfer whose one end is launched spins on its GPU until the other end is. Freeing memory waits
for all that was launched, and keeps every other thread of its process from launching meanwhile. So
two ranks that have each launched one end of two different transfers, and then free memory, wait for
each other for ever:

    rank 0   launches its end of 7     frees memory: waits for 7, and cannot launch 8
    rank 1   launches its end of 8     frees memory: waits for 8, and cannot launch 7

Therefore a process begins no launch before the one before it has been answered. When all members of
a transfer or a collective are ready, each from the lowest rank to the highest

    hears go from the member below, takes its window, says go to the member above, launches,
    hears that the one above has launched, gives its window back, and says so to the one below

A transfer has two members, a collective has any number.

Why nobody waits for ever: a member that holds its window waits for nothing but the driver until it
has launched. If freeing memory keeps the driver, it waits for another launch: one that this rank
has made and given its window back for, so that only lower ranks can lack it. They have said go, and
so hold their windows, and the argument goes on with them; the lowest has no rank below. Hence all
who hold a window launch. A rank that waits for a window waits for a member above to launch, and the
highest waits for nobody.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import torch

HOST_DEVICE = torch.device("cpu")


class Neighbour(NamedTuple):
    """The next member above or below; one message at a time goes there or comes from it."""

    tell: Callable[[], object]
    hear: Callable[[], object]


def neighbour_over_host(host: Any, rank: int, tag: int) -> Neighbour:
    """A member that is reached through the host back end of a group, under a tag of its own."""
    return Neighbour(
        lambda: host.send([torch.zeros(1)], rank, tag).wait(),
        lambda: host.recv([torch.zeros(1)], rank, tag).wait(),
    )


class LaunchWindow:
    """Shared by everything that a process launches together with other ranks."""

    def __init__(self) -> None:
        self._held = Lock()

    @contextmanager
    def between(self, below: Neighbour | None, above: Neighbour | None) -> Iterator[None]:
        """Around the launch of one member, once all members are ready."""
        if below:
            below.hear()
        with self._held:
            if above:
                above.tell()
            yield
            if above:
                above.hear()
        if below:
            below.tell()


LAUNCH_WINDOW = LaunchWindow()
"""That of this process."""
