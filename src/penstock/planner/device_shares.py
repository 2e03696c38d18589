"""What the devices of a schedule have of a model: layers of each sort, and those in front of them.

A bound looks at few devices, which are the slowest or the fullest of all that a split of layers
gives.
"""

from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from penstock.core.shape import Shape
from penstock.estimate.layer_sorts import least_stages
from penstock.schedules.generators.placements import looped_placement, wave_placement


class DeviceShare(NamedTuple):
    """What a device of a schedule has."""

    layers: tuple[int, ...]
    """Of each sort."""
    before: tuple[int, ...]
    fewest: list[tuple[int, ...]]
    others: tuple[float, ...]
    """The columns of `Entries` from `first` on."""


@lru_cache(maxsize=1024)
def stage_homes(devices: int, chunks: int, looped: bool) -> tuple[int, ...]:
    """The device of each stage."""
    shape = Shape.even(devices, 1, chunks)
    return tuple((looped_placement if looped else wave_placement)(shape))


@lru_cache(maxsize=1024)
def device_shares(
    sizes: tuple[int, ...],
    homes: tuple[int, ...],
    sorts: tuple[int, ...],
    loads: tuple[float, ...],
) -> tuple[tuple[int, DeviceShare], ...]:
    """Devices that are looked at, with the part of the model that each has; each layer has a sort
    and a load. The third of them stands for all others, so that its smallest stage is that of any
    device."""
    devices, last, ends = max(homes) + 1, homes[-1], [0, *accumulate(sizes)]
    stages_of = [[s for s, home in enumerate(homes) if home == d] for d in range(devices)]
    counts = [_counted(sorts, start, end) for start, end in pairwise(ends)]
    load = [sum(loads[start:end]) for start, end in pairwise(ends)]
    others = {*range(devices)} - {0, last} or {devices - 1}
    most = max(others, key=lambda each: (sum(load[s] for s in stages_of[each]), -each))
    found = []
    for device in (0, last, most, devices - 1):
        own = stages_of[device]
        layers = tuple(map(sum, zip(*(counts[stage] for stage in own))))
        before = _counted(sorts, 0, ends[own[0]])
        fewest = least_stages(counts if device == most else [counts[stage] for stage in own])
        at_ends = (float(0 in own), float(len(sizes) - 1 in own), float(own[0]))
        found.append((device, DeviceShare(layers, before, fewest, at_ends)))
    return tuple(found)


def _counted(sorts: tuple[int, ...], start: int, end: int) -> tuple[int, ...]:
    """How many of some layers there are of each sort."""
    return tuple(map(sorts[start:end].count, range(max(sorts) + 1)))
