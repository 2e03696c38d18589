"""Seconds that copies to the host take at least, counted in the order of the schedule itself.

A device has one lane for copies, which go out and come back one after the other. How many there are
depends on the order: what is needed again at once stays. So a plain schedule is made, which takes a
tenth of the time of making, proving and simulating the one with copies.
"""

import numpy as np

from penstock.arch.layer_split import even_split
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.moved_activations import moved_activations
from penstock.planner.piece_times import PieceTimes


def copy_seconds(layout: TrainingLayout, piece: PieceTimes) -> float:
    """Of the device that copies longest; `piece` is a microbatch of the layout."""
    sizes = (layout.pipeline, layout.microbatches, layout.chunks, layout.slices)
    moved = moved_activations(layout.schedule, sizes, layout.options)
    layers = np.array(layout.layers or even_split(layout.model.layers, moved.shape[1]), np.float64)
    tokens = piece.cost.workload.tokens[: len(piece.lengths)]
    sent = (piece.act / tokens).min() * tokens  # a copy is charged by the token
    return float(2 * (moved @ sent @ layers).max() / layout.cluster.gpu.host_rate)
