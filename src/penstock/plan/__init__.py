"""Choosing what a schedule leaves open: where sequences are cut, and how long that takes."""

from penstock.plan.fill import Fastest, FastestBatch, fastest, fastest_batch
from penstock.plan.packing import Packing, Piece, pack
from penstock.plan.slices import equal_flops, equal_flops_of_model, even, flops_shares
from penstock.plan.windows import resting, update_windows

__all__ = [
    "Fastest",
    "FastestBatch",
    "Packing",
    "Piece",
    "equal_flops",
    "equal_flops_of_model",
    "even",
    "fastest",
    "fastest_batch",
    "flops_shares",
    "pack",
    "resting",
    "update_windows",
]
