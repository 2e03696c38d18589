"""What ops send in a cell and compute on a rank, kept for all layouts that have it in common."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.cluster.collective_times import GroupLinks
from penstock.cost.cell_sums import KnownPrices, KnownTables, StageLike
from penstock.cost.hardware import Hardware
from penstock.cost.rank_share import RankShare
from penstock.estimate.layer_times import LayerTimes

UnitLengths = tuple[tuple[int, ...], ...]
"""Slices up to each unit that differs."""
SECONDS_OF = {
    "gather": "ring_seconds",
    "scatter_sum": "ring_seconds",
    "pass_on": "pass_seconds",
    "exchange": "exchange_seconds",
}
"""How collectives are timed among the ranks of a group; others are sums for all."""


def collective_seconds(group: GroupLinks, name: str, sent: float) -> float:
    """Of one collective in which a rank sends so many bytes."""
    found: float = getattr(group, SECONDS_OF.get(name, "sum_seconds"))(sent)
    return found


class KeptSums(NamedTuple):
    """What has been found for the cells of some layouts."""

    of_stages: KnownTables
    of_parts: KnownPrices


@lru_cache(maxsize=1024)
def kept_sums(
    share: RankShare,
    hardware: Hardware,
    groups: tuple[GroupLinks, ...],
    counts: tuple[int, int],
    on_shards: tuple[str, ...],
    slices: UnitLengths,
) -> KeptSums:
    """Where to keep what ops send in a cell: layouts whose cells are alike send the same. `counts`
    are rows, and layers that are computed again; `on_shards` is what all devices have a part of;
    `slices` are those up to each unit that differs."""
    return KeptSums({}, {})


class KeptSeconds(NamedTuple):
    """What ops compute, as far as it has been worked out."""

    of_stages: dict[tuple[str, StageLike], NDArray[np.float64]]
    """By kind and stage: seconds of each unit that differs."""
    of_ends: dict[tuple[str, int, StageLike], float]
    """By kind, owners and stage: seconds of the end of a step."""


@lru_cache(maxsize=1024)
def kept_seconds(
    times: LayerTimes,
    share: RankShare,
    counts: tuple[int, int],
    ends: tuple[str, str, int],
    slices: UnitLengths,
) -> KeptSeconds:
    """Where to keep what ops compute on a rank. `counts` and `slices` are those of `kept_sums`,
    `ends` says where embedding and head are, and in how many shards."""
    return KeptSeconds({}, {})
