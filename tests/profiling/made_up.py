"""A profile of a machine that nobody has: every rate is one number, so that sums are known."""

from typing import Any

from penstock.arch.presets import MODELS
from penstock.cluster.measured import (
    END_RATES,
    FACTORS,
    FIXED_PARTS,
    MOVING_KERNELS,
    PRODUCT_PASSES,
)
from penstock.cluster.profile_file import FORMAT, VERSION
from penstock.profiling.case import ProfileCase

FLOPS, BYTES, SENT = 1e9, 1e8, 1e7
"""Rates of products and attention, of kernels that move bytes, of collectives."""
CASE = ProfileCase("tiny", MODELS["tiny"], 256, 4, "fp32")


def profile(**changes: Any) -> dict[str, Any]:
    """The profile, with some parts of it changed."""
    products = [{"pass": name, "m": 64, "n": 64, "k": 64} for name in PRODUCT_PASSES]
    attended = [
        {"pass": name, "tokens": 64, "keys": 64, "heads": 4, "head_size": 16}
        for name in ("forward", "backward")
    ]
    moving = [{"name": name, "pass": passed, "bytes": 4096} for name, passed in MOVING_KERNELS]
    record = {
        "format": FORMAT,
        "version": VERSION,
        "made": {"device": "none", "torch": "2", "cuda": None, "threads": 1},
        "case": CASE.record() | {"fused": False},
        "machine": {"device": "cpu", "ranks": 1, "memory_bytes": 2**30, "cores": 1},
        "step": {
            "seconds": 1.0,
            "mean": 1.0,
            "deviation": 0.01,
            "count": 5,
            "tokens_per_second": 256.0,
        },
        "phases": {"forward": 0.4, "other": 0.6},
        "ops": [],
        "products": [row | {"seconds": 1e-3, "flops_per_second": FLOPS} for row in products],
        "attention": [row | {"seconds": 1e-3, "flops_per_second": FLOPS} for row in attended],
        "kernels": [row | {"seconds": 1e-3, "bytes_per_second": BYTES} for row in moving],
        "copies": [{"way": "to host", "bytes": 1024, "bytes_per_second": BYTES}],
        "collectives": [],
        "modules": [{"name": "norms", "seconds": 0.5}, {"name": "rest", "seconds": 0.5}],
        "memory": {
            "context_bytes": 0,
            "gaps": 0.0,
            "step_bytes": 2**20,
            "allocated_bytes": 2**21,
            "reserved_bytes": 2**21,
        },
        "in_step": dict.fromkeys(FACTORS, 1.0),
        "fixed_seconds": dict.fromkeys(FIXED_PARTS, 0.0),
        "whole_over_slices": dict.fromkeys(FIXED_PARTS, 1.0),
        "rates": dict.fromkeys(END_RATES, BYTES),
        "between_ops_seconds": 0.0,
        "utilisation": {"flops_utilisation": None},
    }
    return record | changes
