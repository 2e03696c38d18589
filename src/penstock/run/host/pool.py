"""Memory of the host that offloaded activations wait in, made before the first step.

A copy between a GPU and the host runs beside computation only if the host's memory is pinned, and
pinning synchronises the device. So all of it is made ahead, as large as the plan says, and given
out piece by piece. What is wanted is found in as few runs of free bytes as there are, so that no
gap is too small to be used: a copy may go to several places.

PyTorch rounds what it pins up to a power of two, so the pool is made of blocks of such sizes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

LARGEST, SMALLEST = 1 << 30, 1 << 21
"""Bytes of blocks."""
ALIGNMENT = 512
"""Bytes at a multiple of which each run begins."""


class HostRange(NamedTuple):
    """Bytes of a block, from one to another."""

    block: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


class HostPool:
    """Gives out bytes of the host; only one thread asks."""

    def __init__(self, device: torch.device) -> None:
        """For tensors of a device."""
        self._pinned = device.type == "cuda"
        self._blocks: list[Tensor] = []
        self._free: list[HostRange] = []
        self.held = 0
        """Bytes that are given out."""
        self.most = 0
        """The most that were given out at once."""
        self.late = 0
        """Bytes that were made while a step ran, because the plan had said too few."""

    @property
    def bytes(self) -> int:
        """What was taken of the host."""
        return sum(len(block) for block in self._blocks)

    def grow(self, wanted: int) -> None:
        """Have at least so many bytes."""
        missing = wanted - self.bytes
        while missing > 0:
            size = _block_size(missing)
            block = torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
            self._blocks.append(block)
            self._free.append(HostRange(len(self._blocks) - 1, 0, size))
            missing -= size

    def reset(self) -> None:
        """Nothing is given out any more, whatever a step that failed has left behind."""
        self._free = [HostRange(number, 0, len(block)) for number, block in enumerate(self._blocks)]
        self.held = 0

    def take(self, size: int) -> list[HostRange]:
        """Runs of so many bytes together, in one piece where there is one."""
        wanted = _aligned(size)
        self._have(wanted)
        fitting = next((run for run in self._free if run.length >= wanted), None)
        found: list[HostRange] = []
        while wanted:
            run = fitting or self._free[0]
            taken = run._replace(stop=min(run.stop, run.start + wanted))
            self._replace(run, run._replace(start=taken.stop))
            found.append(taken)
            wanted -= taken.length
        self.held += sum(run.length for run in found)
        self.most = max(self.most, self.held)
        return found

    def give_back(self, runs: list[HostRange]) -> None:
        """What was taken is free again; neighbours become one run."""
        self.held -= sum(run.length for run in runs)
        joined: list[HostRange] = []
        for run in sorted([*self._free, *runs]):
            before = joined[-1] if joined else None
            if before is not None and (before.block, before.stop) == (run.block, run.start):
                joined[-1] = before._replace(stop=run.stop)
            else:
                joined.append(run)
        self._free = joined

    def bytes_at(self, run: HostRange) -> Tensor:
        """The memory of a run."""
        return self._blocks[run.block][run.start : run.stop]

    def _have(self, wanted: int) -> None:
        """Make what is missing, late as it is."""
        free = sum(run.length for run in self._free)
        if free < wanted:
            before = self.bytes
            self.grow(before + wanted - free)
            self.late += self.bytes - before

    def _replace(self, run: HostRange, rest: HostRange) -> None:
        at = self._free.index(run)
        self._free[at : at + 1] = [rest] if rest.length else []


def _block_size(missing: int) -> int:
    """The largest power of two that is no more than what is missing, within limits."""
    size = LARGEST
    while size > max(missing, SMALLEST):
        size //= 2
    return size


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
