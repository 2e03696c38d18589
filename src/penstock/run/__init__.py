"""The runtime: programs executed by real processes.

`ModulePipeline` runs a schedule over modules and in a loop of your own. Everything in here needs
torch, which is loaded with the first name that is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.run.step.module_pipeline import ModulePipeline

__all__ = ["ModulePipeline"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("penstock.run.step.module_pipeline"), name)
    raise AttributeError(f"module 'penstock.run' has no attribute {name!r}")
