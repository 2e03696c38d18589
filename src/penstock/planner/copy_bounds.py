"""What copies to the host take at least, counted in the order of the schedule itself.

A device has one lane for copies, which go out and come back one after the other. How many there
are, and how many activations wait on the host at once, depends on the order: what is needed again
at once stays. So a plain schedule is made, which takes a tenth of the time of making, proving and
simulating the one with copies.
"""

from typing import NamedTuple

import numpy as np

from penstock.estimate.layer_sorts import sorts_of_stages
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.moved_activations import moved_activations
from penstock.planner.piece_times import PieceTimes


class CopyBounds(NamedTuple):
    """What no step with these copies is below."""

    seconds: float
    """Of the device that copies longest."""
    host: float
    """Bytes of the host that has most: no less than hosts have on average."""


def copy_bounds(layout: TrainingLayout, piece: PieceTimes) -> CopyBounds:
    """The bounds of a layout; `piece` is a microbatch of it."""
    sizes = (layout.pipeline, layout.microbatches, layout.chunks, layout.slices)
    moved = moved_activations(layout.schedule, sizes, layout.options)
    layers = sorts_of_stages(layout.model, moved.stages, layout.layers)
    of_token = (piece.copied / piece.tokens).min(axis=1)  # a copy is charged by the token
    cluster = layout.cluster
    copied = moved.copied(moved.bytes_of(np.outer(layers @ of_token, piece.tokens)))
    waiting = moved.waiting(moved.bytes_of(layers @ piece.copied)).mean()
    hosts = -(-cluster.gpus // cluster.machine.gpus)
    return CopyBounds(
        float(2 * copied.max(initial=0.0) / cluster.gpu.host_rate),
        float(waiting * cluster.gpus / hosts),
    )
