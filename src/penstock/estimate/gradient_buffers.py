"""How many buffers for gradients a schedule needs, without making the one with gathers."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.schedule import Schedule
from penstock.estimate.step_schedule import device_of_stages, plain_schedule
from penstock.transform.sharding import fewest_for_one_reduction


class GradientBuffers(NamedTuple):
    """Where copies of the weights share all of them."""

    buffers: int
    """Of each device."""
    stages: NDArray[np.int64]
    """Of each device, which has as many as any other."""


@lru_cache(maxsize=256)
def gradient_buffers(
    name: str,
    sizes: tuple[int, int, int | None, int | None],
    options: tuple[tuple[str, str], ...],
) -> GradientBuffers:
    """Those of a schedule with these sizes."""
    return buffers_of(plain_schedule(name, sizes, options))


def buffers_of(schedule: Schedule) -> GradientBuffers:
    """The same; one that has gathers keeps them, and says nothing of its buffers here."""
    count = 0 if "G" in schedule.table.kinds else fewest_for_one_reduction(schedule)
    homes, devices = device_of_stages(schedule), schedule.shape.devices
    return GradientBuffers(count, np.argsort(homes, kind="stable").reshape(devices, -1))
