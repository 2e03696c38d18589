"""Schedules whose order depends on prices, simulated at the prices they were built for."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.timeline import Timeline


def cost(
    times: tuple[int | str, int | str, int | str] = (1, 1, 1),
    *,
    hop: int | str = 0,
    sizes: Mapping[str, int] | None = None,
) -> UnitCost:
    """Prices in the letters of the papers: `times` are those of F, I and W."""
    return UnitCost(
        times={kind: Fraction(time) for kind, time in zip("FIW", times)},
        hop=Fraction(hop),
        sizes={name: Fraction(size) for name, size in (sizes or {}).items()},
    )


def built_for(prices: UnitCost, name: str, p: int, m: int, **options: Any) -> Schedule:
    """A registered schedule for measured prices."""
    return build(name, devices=p, microbatches=m, options=options, prices=prices.prices)


def measured(prices: UnitCost, name: str, p: int, m: int, **options: Any) -> Timeline:
    """Its timeline at these prices."""
    return simulate(built_for(prices, name, p, m, **options), prices)
