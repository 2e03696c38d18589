"""Executors of the orders that a run has taken.

A run whose plan changes with every batch comes back to the same orders, and compiling one takes
longer than choosing it. What an executor does depends on the order alone; the lengths of slices
come with each batch. So the newest few are kept, and an older one ends what works at its side.
"""

from penstock.run.execute.executor import Executor

MOST_KEPT = 64
"""Orders of one run that stay compiled."""


class KeptExecutors:
    """Executors by the hash of their schedule, the one used last at the end."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[str, Executor] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, digest: str) -> Executor | None:
        """The executor of an order, if it is here; it is then the one used last."""
        found = self._kept.pop(digest, None)
        if found is not None:
            self._kept[digest] = found
        return found

    def keep(self, digest: str, executor: Executor) -> Executor:
        """Keep one more, and end the one that was used longest ago where there are too many."""
        self._kept[digest] = executor
        while len(self._kept) > self._most:
            self._kept.pop(next(iter(self._kept))).close()
        return executor

    def close(self) -> None:
        """End what works at the side of each."""
        for executor in self._kept.values():
            executor.close()

    def clear(self) -> None:
        self._kept.clear()
