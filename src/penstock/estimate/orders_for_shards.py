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
    for name in _made_for_shards():
        spec = registry()[name]
        with suppress(PenstockError):
            case = spec.case(*sizes)
            if spec.sliced == (wanted[1] > 1) and (case.v, case.k) == wanted:
                found.append(f"--schedule {name}")
    return found


@lru_cache(maxsize=1)
def _made_for_shards() -> tuple[str, ...]:
    """Records with passes over the vocabulary, as a small request of each shows: the shape of some
    is found by a search, which takes long for a large one."""
    devices, microbatches, slices = SMALL_REQUEST
    found = []
    for name, spec in registry().items():
        with suppress(PenstockError):
            case = spec.case(devices, microbatches, None, slices if spec.sliced else None)
            if spec.shape(case).shards:
                found.append(name)
    return tuple(found)
