"""What gradients take at least where copies of the weights share all of them.

A device has as many buffers for gradients as let each of its stages be reduced once. How many that
are depends on the order of the backwards: two where a stage runs all microbatches at once, one for
each stage where stages take turns. Bounds of all candidates count two. So a plain schedule is made,
which takes a tenth of the time of making and proving the one with gathers.
"""

import numpy as np

from penstock.arch.layers.record import wide_bytes
from penstock.estimate.gradient_buffers import gradient_buffers
from penstock.estimate.layer_sorts import Floats, layer_sorts, sorts_of_stages
from penstock.estimate.layout import TrainingLayout
from penstock.planner.piece_times import PieceTimes

COUNTED_BUFFERS = 2
"""Buffers that the bounds of all candidates know of."""


def more_gradient_bytes(layout: TrainingLayout, piece: PieceTimes) -> float:
    """Bytes of buffers that each device has beside two average ones; `piece` is a microbatch. A
    buffer is as large as the largest stage that it takes, so all are no smaller than as many of the
    smallest stages."""
    sizes = (layout.pipeline, layout.microbatches, layout.chunks, layout.slices)
    buffers, of_device = gradient_buffers(layout.schedule, sizes, layout.options)
    if buffers <= COUNTED_BUFFERS:
        return 0.0
    work = piece.cost.workload
    own = np.sort(_stage_elements(layout, piece, of_device.size)[of_device], axis=1)
    every = own.sum(axis=1) + 2 * work.part.head_weights
    more = own[:, :buffers].sum(axis=1) - COUNTED_BUFFERS * every / own.shape[1]
    return float(max(0.0, more.min()) * wide_bytes(work.model.element_bytes))


def _stage_elements(layout: TrainingLayout, piece: PieceTimes, stages: int) -> Floats:
    """Parameters of the layers of each stage that a rank has gradients of."""
    sorts, work = layer_sorts(layout.model), piece.cost.workload
    of_sort = np.array([float(sum(work.elements(1 + layer))) for layer in sorts.shown_by])
    return np.asarray(sorts_of_stages(layout.model, stages, layout.layers) @ of_sort)
