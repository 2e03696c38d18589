"""Choosing what a schedule leaves open: where sequences are cut, and how long that takes."""

from penstock.plan.fill import Fastest, FastestBatch, fastest, fastest_batch
from penstock.plan.packing import PackedPiece, Packing, pack, pack_tails
from penstock.plan.slices import equal_flops, equal_flops_of_model, even, flops_shares
from penstock.plan.windows import resting_stages, update_windows

__all__ = [
    "Fastest",
    "FastestBatch",
    "PackedPiece",
    "Packing",
    "equal_flops",
    "equal_flops_of_model",
    "even",
    "fastest",
    "fastest_batch",
    "flops_shares",
    "pack",
    "pack_tails",
    "resting_stages",
    "update_windows",
]
