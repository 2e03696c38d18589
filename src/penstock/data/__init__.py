"""What is trained on: text in, microbatches out.

    text, records, arrays --tokenise--> Corpus --pack--> sequences --SampleStream--> Microbatch

The settings can be read without torch; the other names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.data.assemble import Data, open_data
    from penstock.data.batch import IGNORE, Microbatch
    from penstock.data.global_batches import GlobalBatch, GlobalBatches
    from penstock.data.samples import Samples
    from penstock.data.settings import DataSettings
    from penstock.data.stream import SampleStream

__all__ = [
    "IGNORE",
    "Data",
    "DataSettings",
    "GlobalBatch",
    "GlobalBatches",
    "Microbatch",
    "SampleStream",
    "Samples",
    "open_data",
]

_HOMES = {
    "penstock.data.assemble": ("Data", "open_data"),
    "penstock.data.batch": ("IGNORE", "Microbatch"),
    "penstock.data.global_batches": ("GlobalBatch", "GlobalBatches"),
    "penstock.data.samples": ("Samples",),
    "penstock.data.settings": ("DataSettings",),
    "penstock.data.stream": ("SampleStream",),
}
"""Where the public names live."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'penstock.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
