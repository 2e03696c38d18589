"""Choosing what a schedule leaves open: where sequences are cut, and how long that takes."""

from penstock.plan.fill import Fastest, FastestBatch, fastest, fastest_batch
from penstock.plan.slices import equal_flops, equal_flops_of_model, even, flops_shares

__all__ = [
    "Fastest",
    "FastestBatch",
    "equal_flops",
    "equal_flops_of_model",
    "even",
    "fastest",
    "fastest_batch",
    "flops_shares",
]
