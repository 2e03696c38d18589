"""Memory of the device that copies to the host are about to empty.

A copy out and the copy in behind it run one after the other, on one stream. What the first has
emptied the second can fill at once: nobody has to wait until the memory has come back to the stream
that computes, and the device never needs room for both.
"""

from collections import defaultdict
from collections.abc import Iterable
from threading import Lock

from torch import Tensor


class LeavingMemory:
    """Storages that are copied out, by size, until they are handed on or given back.

    The main thread hands on, and where copies run on a thread of the host that one gives back.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_size: dict[int, list[Tensor]] = defaultdict(list)

    def add(self, storages: Iterable[Tensor]) -> None:
        with self._lock:
            for storage in storages:
                self._by_size[len(storage)].append(storage)

    def hand_on(self, size: int) -> Tensor | None:
        """A storage of that size for whoever copies next, if there is one: the last that was added,
        which the stream that computes gets back last."""
        with self._lock:
            found = self._by_size[size]
            return found.pop() if found else None

    def give_back(self, storages: Iterable[Tensor]) -> None:
        """Forget storages that nobody was given."""
        with self._lock:
            for storage in storages:
                found = self._by_size[len(storage)]
                self._by_size[len(storage)] = [each for each in found if each is not storage]

    def reset(self) -> None:
        """Forget all, whatever a step that failed has left behind."""
        with self._lock:
            self._by_size.clear()
