"""Schedules whose order has time for a vocabulary that is spread over all devices.

Any schedule can have passes over the vocabulary, but most leave no time for them: each microbatch
waits for all devices where its forward becomes a backward. Some are made for it.
"""

from contextlib import suppress
from functools import lru_cache

from penstock.errors import PenstockError
from penstock.estimate.layout import TrainingLayout
from penstock.schedules import registry

SMALL_REQUEST = (2, 4, 2)
"""Devices, microbatches and slices of a request that most records take."""


def orders_for_shards(layout: TrainingLayout) -> list[str]:
    """How to ask for those with as many stages and slices as a layout has.

    >>> from penstock.estimate.request import layout_from
    >>> asked = {"model": "llama3-8b", "cluster": "h100:8", "tokens": 8192, "batch_tokens": 131072}
    >>> orders_for_shards(layout_from({**asked, "mesh": "pipeline=4", "schedule": "1f1b"}))
    ['--schedule interlaced', '--schedule vocab-1f1b']
    """
    own = registry().get(layout.schedule)
    if own is None:  # of a file
        return []
    wanted = (layout.chunks or own.chunks or 1, layout.slices or 1)
    sizes, found = (layout.pipeline, layout.microbatches, *wanted), []
    for name, spec in registry().items():
        if spec.sliced != (wanted[1] > 1) or not is_made_for_shards(name):
            continue
        with suppress(PenstockError):
            case = spec.case(*sizes)
            if (case.v, case.k) == wanted:
                found.append(f"--schedule {name}")
    return found


@lru_cache(maxsize=256)
def is_made_for_shards(name: str) -> bool:
    """Whether a record has passes over the vocabulary, as a small request shows: the shape of some
    is found by a search, which takes long for a large one."""
    spec, (devices, microbatches, slices) = registry()[name], SMALL_REQUEST
    with suppress(PenstockError):
        case = spec.case(devices, microbatches, None, slices if spec.sliced else None)
        return spec.shape(case).shards > 0
    return False
