"""A lane written down the way a paper tells it: "one more forward of this stage".

V-shaped schedules are told in steps that only say a kind and a stage; which microbatch is meant is
a matter of counting. The lane counts, and remembers which weight gradients are still due.
"""

from collections import Counter
from typing import Any

from penstock.schedules.generators.streams import PlainOp


class LaneDraft:
    """The ops of one device; the microbatches of a stage come in ascending order."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        """Ops, and pairs of ops."""
        self._done: Counter[tuple[str, int]] = Counter()
        self._due: list[PlainOp] = []
        """Weight gradients whose input gradient has run, oldest first."""

    def run(self, kinds: str, stage: int) -> None:
        """Append the stage's next op of each kind; a W that is not due is left out.

        >>> lane = LaneDraft()
        >>> lane.run("FIFW", stage=3)
        >>> lane.items
        [('F', 3, 0, 0), ('I', 3, 0, 0), ('F', 3, 1, 0), ('W', 3, 0, 0)]
        """
        for kind in kinds:
            if kind == "W":
                self._settle([op for op in self._due if op[1] == stage][:1])
            else:
                self.items.append(self._next(kind, stage))

    def braid(self, *, forward: int, backward: int) -> None:
        """Append a forward and a full backward of two stages as one pair."""
        self.pair(("F", forward), ("B", backward))

    def pair(self, *strands: tuple[str, int]) -> None:
        """Append the next ops of these kinds and stages as one pair.

        >>> lane = LaneDraft()
        >>> lane.pair(("F", 0), ("F", 0))
        >>> lane.items
        [(('F', 0, 0, 0), ('F', 0, 1, 0))]
        """
        before = len(self.items)
        for kind, stage in strands:
            self.run(kind, stage)
        self.items[before:] = [tuple(self.items[before:])]

    def run_oldest(self) -> None:
        """Append the weight gradient that has been due longest, if there is one."""
        self._settle(self._due[:1])

    def run_all(self, stage: int) -> None:
        """Append all weight gradients of a stage that are due."""
        self._settle([op for op in self._due if op[1] == stage])

    def _next(self, kind: str, stage: int) -> PlainOp:
        counted = "F" if kind == "F" else "B"  # full and split backwards share their count
        mb = self._done[counted, stage]
        self._done[counted, stage] += 1
        if kind == "I":
            self._due.append(("W", stage, mb, 0))
        return (kind, stage, mb, 0)

    def _settle(self, weights: list[PlainOp]) -> None:
        for op in weights:
            self._due.remove(op)
            self.items.append(op)
