"""Who is where: ranks on a grid with named axes.

    replica    copies of the whole pipeline, which share the batch
    device     positions of the pipeline
    ring       ranks of a device that share the tokens of a slice and pass keys and values round
    ulysses    ranks of a device that share the tokens of a slice and exchange them for heads
    tensor     ranks of a device that share its matrices

A device of a schedule is a cell of `ring x ulysses x tensor` ranks. The last axis of the order
changes fastest from rank to rank: ranks of one machine should be those that talk most.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from penstock.errors import RunError

GRID_AXES = ("replica", "device", "ring", "ulysses", "tensor")
SEQUENCE = ("ring", "ulysses")
"""Axes along which ranks share the tokens of a slice; "sequence" stands for both."""


def spelled_out(axes: Iterable[str]) -> tuple[str, ...]:
    """Axes with those that "sequence" stands for.

    >>> spelled_out(("device", "sequence"))
    ('device', 'ring', 'ulysses')
    """
    return tuple(one for axis in axes for one in (SEQUENCE if axis == "sequence" else (axis,)))


@dataclass(frozen=True)
class Grid:
    """The size of every axis, and their order over ranks, the outermost first."""

    replica: int = 1
    device: int = 1
    ring: int = 1
    ulysses: int = 1
    tensor: int = 1
    order: tuple[str, ...] = GRID_AXES

    def __post_init__(self) -> None:
        if sorted(self.order) != sorted(GRID_AXES):
            raise RunError(
                f"the order of a mesh is {', '.join(self.order)}",
                hint=f"name each of {', '.join(GRID_AXES)} once",
            )

    @property
    def sequence(self) -> int:
        """Ranks of a device that share the tokens of a slice."""
        return self.ring * self.ulysses

    def size(self, axis: str) -> int:
        found: int = getattr(self, axis)
        return found

    @property
    def ranks(self) -> int:
        return prod(self.size(axis) for axis in GRID_AXES)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank is on each axis.

        >>> Grid(replica=2, device=4).coordinates(6)
        {'replica': 1, 'device': 2, 'ring': 0, 'ulysses': 0, 'tensor': 0}
        """
        found: dict[str, int] = {}
        for axis in reversed(self.order):
            rank, found[axis] = divmod(rank, self.size(axis))
        return {axis: found[axis] for axis in GRID_AXES}

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """The rank at some coordinates."""
        number = 0
        for axis in self.order:
            number = number * self.size(axis) + coordinates[axis]
        return number

    def groups(self, *axes: str) -> list[list[int]]:
        """Ranks that differ on these axes alone, group by group.

        >>> Grid(replica=2, device=3).groups("replica")
        [[0, 3], [1, 4], [2, 5]]
        """
        chosen = spelled_out(axes)
        others = [axis for axis in self.order if axis not in chosen]
        inside = [axis for axis in self.order if axis in chosen]
        return [
            [self.rank({**outer, **inner}) for inner in self._points(inside)]
            for outer in self._points(others)
        ]

    def _points(self, axes: list[str]) -> list[dict[str, int]]:
        sizes = (range(self.size(axis)) for axis in axes)
        return [dict(zip(axes, point)) for point in product(*sizes)]
