"""Seconds of layers and of the head that many layouts have in common, worked out once."""

from functools import lru_cache

from penstock.estimate.layer_seconds import LayerSeconds, UnitTokens
from penstock.estimate.layer_times import LayerTimes


@lru_cache(maxsize=4096)
def units_seconds(times: LayerTimes, units: tuple[UnitTokens, ...]) -> tuple[LayerSeconds, ...]:
    """Of a layer, for each slice; layouts often differ in something else."""
    return tuple(map(times.seconds, units))


@lru_cache(maxsize=4096)
def heads_seconds(
    times: LayerTimes, units: tuple[UnitTokens, ...], flops_of_token: float, kind: str
) -> tuple[float, ...]:
    """The same of the head."""
    return tuple(
        times.head_seconds(unit.whole, flops_of_token * unit.whole, kind) for unit in units
    )
