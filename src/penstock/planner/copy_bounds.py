"""Seconds that copies to the host take at least, counted in the order of the schedule itself.

A device has one lane for copies, which go out and come back one after the other. How many there are
depends on the order: what is needed again at once stays. So a plain schedule is made, which takes a
tenth of the time of making, proving and simulating the one with copies.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from penstock.arch.layer_split import even_split
from penstock.estimate.layout import TrainingLayout
from penstock.planner.piece_times import PieceTimes
from penstock.schedules import build
from penstock.transform.offload import moved_ops


def copy_seconds(layout: TrainingLayout, piece: PieceTimes) -> float:
    """Of the device that copies longest; `piece` is a microbatch of the layout."""
    sizes = (layout.pipeline, layout.microbatches, layout.chunks, layout.slices)
    moved = _moved(layout.schedule, sizes, layout.options)
    layers = np.array(layout.layers or even_split(layout.model.layers, moved.shape[1]), np.float64)
    tokens = piece.cost.workload.tokens[: len(piece.lengths)]
    sent = (piece.act / tokens).min() * tokens  # a copy is charged by the token
    return float(2 * (moved @ sent @ layers).max() / layout.cluster.gpu.host_rate)


@lru_cache(maxsize=256)
def _moved(
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
