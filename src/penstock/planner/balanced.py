"""The split of a model's layers that is tried beside an even one."""

from functools import lru_cache

from penstock.arch.balanced_split import faster_split
from penstock.arch.unequal_split import faster_unequal
from penstock.planner.device_shares import stage_homes
from penstock.planner.model_loads import ModelLoads


@lru_cache(maxsize=1024)
def balanced_split(loads: ModelLoads, sizes: tuple[int, int], *, looped: bool) -> tuple[int, ...]:
    """The split that is faster than an even one, if there is any, of so many devices and stages of
    each."""
    homes, more = stage_homes(*sizes, looped), [0.0] * (sizes[0] * sizes[1])
    more[0] += loads.embedding
    more[-1] += loads.head
    if len({*loads.layers}) == 1:
        return faster_split(len(loads.layers), more, homes)
    return faster_unequal(loads.layers, more, homes)
