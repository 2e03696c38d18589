"""The verifier: schedules run by real processes, compared with a plain model in one process.

`penstock.verify(pipeline, inputs, targets)` does so with modules of your own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.verify.own_pipeline import PipelineVerdict, verify

__all__ = ["PipelineVerdict", "verify"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("penstock.verify.own_pipeline"), name)
    raise AttributeError(f"module 'penstock.verify' has no attribute {name!r}")
