"""How many activations of a schedule go to the host, counted without making the copies."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from penstock.schedules import build
from penstock.transform.offload import moved_ops


@lru_cache(maxsize=256)
def moved_activations(
    name: str,
    sizes: tuple[int, int, int | None, int | None],
    options: tuple[tuple[str, str], ...],
) -> NDArray[np.float64]:
    """How many activations each device moves, by stage and slice."""
    devices, microbatches, chunks, slices = sizes
    plain = build(
        name,
        devices=devices,
        microbatches=microbatches,
        chunks=chunks,
        slices=slices,
        options=dict(options),
    )
    home = np.zeros(plain.shape.stages, np.int64)
    home[plain.table.stage] = plain.table.device
    found = np.zeros((devices, plain.shape.stages, max(plain.shape.slices)))
    for op in moved_ops(plain, range(plain.shape.stages)):
        found[home[op.stage], op.stage, op.slice] += 1
    return found
