"""What ops send in a cell, kept for all layouts whose cells are alike."""

from functools import lru_cache
from typing import NamedTuple

from penstock.cluster.collective_times import GroupLinks
from penstock.cost.cell_sums import KnownPrices, KnownSums, KnownTables
from penstock.cost.hardware import Hardware
from penstock.cost.rank_share import RankShare

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

    of_ops: KnownSums
    of_stages: KnownTables
    of_parts: KnownPrices


@lru_cache(maxsize=1024)
def kept_sums(
    share: RankShare,
    hardware: Hardware,
    groups: tuple[GroupLinks, ...],
    counts: tuple[int, int],
    timed: frozenset[str],
) -> KeptSums:
    """Where to keep what ops send in a cell: layouts whose cells are alike send the same. `counts`
    are rows, and layers that are computed again; `timed` are axes along which it takes time."""
    return KeptSums({}, {}, _kept_prices(share, hardware, groups, counts[0]))


@lru_cache(maxsize=1024)
def _kept_prices(
    share: RankShare, hardware: Hardware, groups: tuple[GroupLinks, ...], rows: int
) -> KnownPrices:
    return {}
