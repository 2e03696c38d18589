"""Ranks that free memory between the two launches of a transfer do not wait for each other.

GPUs are played: a launch needs the driver, and freeing memory holds the driver until everything
that this rank has launched has ended, which needs the launch at the other end.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from threading import Condition, Event, Lock, Thread

import pytest

from penstock.run.comm.launch_window import LaunchWindow

FOR_EVER = 2.0
"""Seconds after which who waits has waited for ever."""
A_WHILE = 0.2

Message = Callable[[], None]
Around = Callable[[Message, Message, bool], AbstractContextManager[None]]


class WaitsForEverError(Exception):
    """A rank waits for one that waits for it."""


class Gpu:
    """The GPU of one rank, and the thread that frees memory once something was launched."""

    launched: set[tuple[int, int]]
    """Rank and transfer, of all ranks."""
    change: Condition

    def __init__(self, rank: int, around: Around) -> None:
        self.rank, self.around = rank, around
        self.freeing, self.failures = Event(), list[str]()
        self._driver = Lock()

    def launch(self, transfer: int) -> None:
        """The first launch is followed by freeing memory, which nobody can come before."""
        if not self._driver.acquire(timeout=FOR_EVER):
            raise WaitsForEverError(f"rank {self.rank} to launch {transfer}")
        with self.change:
            self.launched.add((self.rank, transfer))
            self.change.notify_all()
        if self.freeing.is_set():
            self._driver.release()
        else:
            self.freeing.set()
            Thread(target=self._free, args=(transfer,), daemon=True).start()

    def _free(self, transfer: int) -> None:
        other = 1 - self.rank, transfer
        with self.change:
            if not self.change.wait_for(lambda: other in self.launched, 2 * FOR_EVER):
                self.failures.append(f"rank {self.rank} to free memory")
        self._driver.release()

    def transfer(self, number: int, tell: Message, hear: Message) -> None:
        """One end. Each rank comes to the transfer of its own number first, if it is left to."""
        if number != self.rank:
            self.freeing.wait(A_WHILE)
        try:
            with self.around(tell, hear, self.rank == 0):
                self.launch(number)
        except WaitsForEverError as failure:
            self.failures.append(str(failure))


def _play(around: list[Around]) -> list[str]:
    """Transfers 0 and 1 between ranks 0 and 1; returns who waited for ever."""
    Gpu.launched, Gpu.change = set(), Condition()
    gpus = [Gpu(rank, each) for rank, each in enumerate(around)]
    threads = []
    for number in range(2):
        mail = [SimpleQueue[None]() for _ in gpus]
        for gpu, own, other in zip(gpus, mail, reversed(mail)):
            arguments = number, lambda other=other: other.put(None), own.get
            threads.append(Thread(target=gpu.transfer, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5 * FOR_EVER)
    return [failure for gpu in gpus for failure in gpu.failures]


@contextmanager
def _at_once(tell: Message, hear: Message, lower: bool) -> Iterator[None]:
    yield


def _in_window() -> Around:
    window = LaunchWindow()
    return lambda tell, hear, lower: window.between(tell, hear, lower=lower)


def test_ends_that_are_launched_at_once_can_wait_for_ever() -> None:
    """What windows are there for: without them this play ends badly."""
    found = _play([_at_once, _at_once])
    assert {"rank 0 to launch 1", "rank 1 to launch 0"} <= set(found)


@pytest.mark.parametrize("_", range(5))
def test_with_windows_nobody_waits_for_ever(_: int) -> None:
    assert _play([_in_window(), _in_window()]) == []
