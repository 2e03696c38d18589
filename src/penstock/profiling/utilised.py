"""How much of its peak a device reaches in a step, where the peak is known."""

from typing import Any

from penstock.estimate.utilisation import token_flops
from penstock.profiling.case import ProfileCase


def step_utilisation(case: ProfileCase, seconds: float, peak: float | None) -> dict[str, Any]:
    """FLOPs of a step by the formula of `penstock estimate`, and their share of the peak."""
    flops = token_flops(case.model, case.tokens) * case.tokens
    rate = flops / seconds
    return {
        "model_flops": flops,
        "flops_per_second": rate,
        "flops_utilisation": rate / peak if peak else None,
    }
