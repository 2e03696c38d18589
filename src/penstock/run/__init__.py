"""The runtime: programs executed by real processes.

`pipeline` runs a schedule over modules and in a loop of your own. Everything in here needs torch,
which is loaded when the first of it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.model.decoders.decoder_stages import decoder_stages
    from penstock.model.decoders.token_loss import token_count, token_loss
    from penstock.run.step.module_pipeline import ModulePipeline
    from penstock.run.step.own_pipeline import pipeline

__all__ = ["ModulePipeline", "decoder_stages", "pipeline", "token_count", "token_loss"]

_HOMES = {
    "ModulePipeline": "penstock.run.step.module_pipeline",
    "decoder_stages": "penstock.model.decoders.decoder_stages",
    "pipeline": "penstock.run.step.own_pipeline",
    "token_count": "penstock.model.decoders.token_loss",
    "token_loss": "penstock.model.decoders.token_loss",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'penstock.run' has no attribute {name!r}")
