"""Which activations of a schedule go to the host and when, without making the copies."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.step_schedule import device_of_stages, plain_schedule
from penstock.transform.copy_turns import copy_turns
from penstock.transform.offload import LEAD

_Turns = NDArray[np.int64]


class MovedActivations(NamedTuple):
    """A row for each activation that is moved."""

    stages: int
    devices: int
    device: _Turns
    stage: _Turns
    slice: _Turns
    away: _Turns
    """The turn of its device from which on it is on the host."""
    back: _Turns
    """The turn at which it starts to come back."""

    def bytes_of(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of each, with the bytes of each stage by slice."""
        return np.asarray(sizes[self.stage, self.slice])

    def copied(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each device copies to its host, where activations have these sizes."""
        return np.bincount(self.device, sizes, self.devices).astype(np.float64)

    def waiting(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each device has on its host when it has most."""
        last = int(self.back.max(initial=0)) + 1
        change = np.zeros((self.devices, last))
        np.add.at(change, (self.device, self.away), sizes)
        np.subtract.at(change, (self.device, self.back), sizes)
        return np.asarray(np.cumsum(change, axis=1).max(axis=1))


@lru_cache(maxsize=256)
def moved_activations(
    name: str,
    sizes: tuple[int, int, int | None, int | None],
    options: tuple[tuple[str, str], ...],
) -> MovedActivations:
    """The activations that copies move, of a schedule with these sizes."""
    plain = plain_schedule(name, sizes, options)
    home, turns, table = device_of_stages(plain), copy_turns(plain, LEAD), plain.table
    stage, slice = (column[turns.forward].astype(np.int64) for column in (table.stage, table.slice))
    return MovedActivations(
        plain.shape.stages, plain.shape.devices, home[stage], stage, slice, turns.away, turns.back
    )
