"""An activation of which a share is on the host.

Of the storages of what a forward saved, the largest move whole, as many as fit into the share; of
the smallest one that does not fit, the first bytes move and the rest is copied aside. So the share
is met to the byte, and next to nothing lies on the device twice.

Memory of the device is taken and given back for the stream that computes, and copies run on another
one. So each way has two halves: what the main thread does when it submits the call, and the copy.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.model.stages.saved_tensors import SavedStorages
from penstock.run.host.pool import HostRange
from penstock.run.host.tier import HostTier


class MovedPart(NamedTuple):
    """A storage whose first bytes move."""

    storage: int
    size: int
    moved: int
    runs: list[HostRange]
    rest: Tensor | None
    """The other bytes, aside."""


class MovedActivation:
    """What was saved of a slice, on its way to the host and back."""

    def __init__(self, saved: SavedStorages, share: Fraction, tier: HostTier) -> None:
        """Choose what moves, and take the room for it on the host."""
        self._nested, self._tier = saved, tier
        self._device = saved.storages[0].device
        sizes = [len(storage) for storage in saved.storages]
        self._parts = [self._part(saved.storages[n], n, moved) for n, moved in chosen(sizes, share)]
        going = {part.storage for part in self._parts}
        self._staying = {n: each for n, each in enumerate(saved.storages) if n not in going}
        self._leaving = {n: each for n, each in enumerate(saved.storages) if n in going}
        self._coming: dict[int, Tensor] = {}
        tier.leaving.add(self._leaving.values())
        saved.storages.clear()

    @property
    def is_split(self) -> bool:
        """Whether a storage moves in part, so that memory was taken for its rest."""
        return any(part.rest is not None for part in self._parts)

    @property
    def moved_bytes(self) -> int:
        return sum(part.moved for part in self._parts)

    @torch.no_grad()
    def copy_out(self) -> None:
        """Copy to the host what moves, and aside what stays of a storage that moves in part."""
        for part in self._parts:
            source = self._leaving[part.storage]
            for host, there in self._ranges(part, source):
                host.copy_(there, non_blocking=True)
            if part.rest is not None:
                part.rest.copy_(source[part.moved :])

    def let_go(self) -> None:
        """Give back the memory of the device, once all is copied; another activation may have been
        given some of it."""
        self._tier.leaving.give_back(self._leaving.values())
        self._leaving = {}

    @torch.no_grad()
    def take_room(self) -> Any:
        """What was saved, in memory that is still to be filled. What is on the host may be written
        over by copies that are submitted later."""
        self._coming = {part.storage: self._memory(part.size) for part in self._parts}
        for part in self._parts:
            self._tier.pool.give_back(part.runs)
        return self._nested.on(self._staying | self._coming)

    def _memory(self, size: int) -> Tensor:
        """What a copy before has emptied, or else new memory."""
        emptied = self._tier.leaving.hand_on(size)
        if emptied is not None:
            return emptied
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    @torch.no_grad()
    def copy_in(self) -> None:
        """Fill the memory that was taken."""
        for part in self._parts:
            target = self._coming[part.storage]
            for host, there in self._ranges(part, target):
                there.copy_(host, non_blocking=True)
            if part.rest is not None:
                target[part.moved :].copy_(part.rest)
        self._coming = {}

    def end(self) -> None:
        """Give back what was aside, once all has come in."""
        self._parts = []

    def _part(self, storage: Tensor, number: int, moved: int) -> MovedPart:
        size = len(storage)
        rest = storage.new_empty(size - moved) if moved < size else None
        return MovedPart(number, size, moved, self._tier.pool.take(moved), rest)

    def _ranges(self, part: MovedPart, storage: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Memory of the host and that of the device that it stands for, run by run."""
        start = 0
        for run in part.runs:
            length = min(run.length, part.moved - start)
            yield self._tier.pool.bytes_at(run)[:length], storage[start : start + length]
            start += length


def chosen(sizes: Sequence[int], share: Fraction) -> list[tuple[int, int]]:
    """Which storages move, by number, and how many of their bytes.

    >>> chosen([10, 40, 30, 20], Fraction(1, 2)), chosen([10, 10, 40], Fraction(1, 4))
    ([(1, 40), (0, 10)], [(0, 10), (1, 5)])
    """
    left = int(sum(sizes) * share)
    found: list[tuple[int, int]] = []
    others: list[int] = []
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        if sizes[number] <= left:
            found.append((number, sizes[number]))
            left -= sizes[number]
        else:
            others.append(number)
    if left:
        found.append((others[-1], left))
    return [(number, moved) for number, moved in found if moved]
