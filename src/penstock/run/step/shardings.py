"""What ranks that hold the same stage can share, by the names that a configuration has."""

from collections.abc import Callable, Mapping

from penstock.errors import RunError, nearest
from penstock.run.step.full_sharding import FullShards
from penstock.run.step.sharding import OptimizerShards, ReplicatedOptimizer, Sharding

SHARDINGS: Mapping[str, Callable[[int], Sharding]] = {
    "none": lambda ranks: ReplicatedOptimizer(),
    "optimizer": OptimizerShards,
    "full": FullShards,
}


def sharding_named(name: str, ranks: int = 0) -> Sharding:
    """The sharding of a name, over groups of so many ranks; 0 stands for all that hold a stage."""
    if name not in SHARDINGS:
        raise RunError(f"there is no sharding {name!r}", hint=nearest(name, [*SHARDINGS]))
    return SHARDINGS[name](ranks)
