"""Ranks that free memory between the launches of a transfer or collective do not wait for ever.

GPUs are played: a launch needs the driver, and freeing memory holds the driver until everything
that this rank has launched has ended, which needs the launches of all other members.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from threading import Condition, Event, Lock, Thread

import pytest

from penstock.run.comm.launch_window import LaunchWindow, Neighbour

pytestmark = pytest.mark.long

FOR_EVER = 2.0
"""Seconds after which who waits has waited for ever."""
A_WHILE = 0.2

Members = tuple[int, ...]
Around = Callable[[Neighbour | None, Neighbour | None], AbstractContextManager[None]]
TRANSFERS: list[Members] = [(0, 1), (0, 1)]
WITH_COLLECTIVES: list[list[Members]] = [
    [(0, 1, 2), (0, 1)],
    [(0, 2), (0, 1, 2), (1, 2)],
    [(0, 1, 2, 3), (0, 1, 2, 3), (2, 3), (0, 3)],
]


class WaitsForEverError(Exception):
    """A rank waits for one that waits for it."""


class Gpu:
    """The GPU of one rank, and the thread that frees memory once something was launched."""

    launched: set[tuple[int, int]]
    """Rank and what it has launched, of all ranks."""
    change: Condition

    def __init__(self, rank: int, around: Around) -> None:
        self.rank, self.around = rank, around
        self.freeing, self.failures = Event(), list[str]()
        self._driver = Lock()

    def launch(self, number: int, members: Members) -> None:
        """The first launch is followed by freeing memory, which nobody can come before."""
        if not self._driver.acquire(timeout=FOR_EVER):
            raise WaitsForEverError(f"rank {self.rank} to launch {number}")
        with self.change:
            self.launched.add((self.rank, number))
            self.change.notify_all()
        if self.freeing.is_set():
            self._driver.release()
        else:
            self.freeing.set()
            Thread(target=self._free, args=(number, members), daemon=True).start()

    def _free(self, number: int, members: Members) -> None:
        wanted = {(rank, number) for rank in members}
        with self.change:
            if not self.change.wait_for(lambda: wanted <= self.launched, 2 * FOR_EVER):
                self.failures.append(f"rank {self.rank} to free memory")
        self._driver.release()

    def take_part(
        self, number: int, members: Members, below: Neighbour | None, above: Neighbour | None
    ) -> None:
        """Each rank comes to what has its own number first, if it is left to."""
        if number != self.rank:
            self.freeing.wait(A_WHILE)
        try:
            with self.around(below, above):
                self.launch(number, members)
        except WaitsForEverError as failure:
            self.failures.append(str(failure))


def _play(groups: Sequence[Members], around: Callable[[], Around]) -> list[str]:
    """All that the groups launch together; returns who waited for ever."""
    Gpu.launched, Gpu.change = set(), Condition()
    gpus = [Gpu(rank, around()) for rank in range(1 + max(map(max, groups)))]
    threads = []
    for number, members in enumerate(groups):
        for rank, (below, above) in zip(members, _neighbours(len(members))):
            arguments = number, members, below, above
            threads.append(Thread(target=gpus[rank].take_part, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5 * FOR_EVER)
    return [failure for gpu in gpus for failure in gpu.failures]


def _neighbours(count: int) -> list[tuple[Neighbour | None, Neighbour | None]]:
    """The one below and the one above of each member of a row."""
    upward, downward = ([SimpleQueue[None]() for _ in range(count - 1)] for _ in range(2))
    above = [Neighbour(lambda up=up: up.put(None), down.get) for up, down in zip(upward, downward)]
    below = [
        Neighbour(lambda down=down: down.put(None), up.get) for up, down in zip(upward, downward)
    ]
    return [*zip([None, *below], [*above, None])]


@contextmanager
def _at_once(below: Neighbour | None, above: Neighbour | None) -> Iterator[None]:
    yield


def _in_window() -> Around:
    return LaunchWindow().between


@pytest.mark.parametrize("groups", [TRANSFERS, WITH_COLLECTIVES[0]])
def test_ends_that_are_launched_at_once_can_wait_for_ever(groups: list[Members]) -> None:
    """What windows are there for: without them this play ends badly."""
    found = _play(groups, lambda: _at_once)
    assert {"rank 0 to launch 1", "rank 1 to launch 0"} <= set(found)


@pytest.mark.parametrize("groups", [TRANSFERS, *WITH_COLLECTIVES])
@pytest.mark.parametrize("_", range(3))
def test_with_windows_nobody_waits_for_ever(groups: list[Members], _: int) -> None:
    assert _play(groups, _in_window) == []
