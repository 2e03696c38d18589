"""Layers, layouts and listings that several tests of the search share."""

from collections.abc import Sequence
from fractions import Fraction

from penstock.core.schedule import Schedule
from penstock.cost.layers import layered_shape, read_layers
from penstock.cost.model import UnitCost
from penstock.schedules import Case
from penstock.search.joint.joint import Problem
from penstock.search.joint.list_scheduler import Listed
from penstock.search.joint.moves import CutAndHomes
from penstock.search.joint.pipeline import Pipeline, Scale
from penstock.sim import simulate
from penstock.sim.timeline import Timeline

HEAVY_HEAD = "16*1,4@0"
"""Sixteen equal layers and a head of four times their cost that keeps nothing."""
IN_A_ROW = (0, 1, 2, 3)
WAVE = (0, 1, 2, 3, 3, 2, 1, 0)


def pipeline(
    layers: str, split: Sequence[int], placement: Sequence[int], m: int, cap: int
) -> Pipeline:
    """A pipeline at unit prices, with split backwards."""
    scale = Scale.of(read_layers(layers), Case(max(placement) + 1, m))
    return Pipeline.of(scale, split, placement, m, cap * int(1 / scale.grain))


def problem(
    layers: str, p: int, m: int, *, chunks: int = 2, limit: Fraction | None = None
) -> Problem:
    scale = Scale.of(read_layers(layers), Case(p, m))
    return Problem(scale, p, m, chunks, scale.limit(limit))


def simulated(layers: str, split: Sequence[int], case: Case, lanes: object) -> Timeline:
    """Lanes on the stages of a cut, at the prices of a case."""
    shape = layered_shape(read_layers(layers), split, case.p, case.m)
    times = {"F": case.F, "I": case.I, "W": case.W}
    sizes = {"act": case.act, "stash": case.stash}
    cost = UnitCost(times=times, sizes=sizes, hop=case.hop)
    return simulate(Schedule.of("order", shape, lanes), cost)  # type: ignore[arg-type]


def replayed(layers: str, layout: CutAndHomes, p: Pipeline, listed: Listed) -> Timeline:
    """What the simulator makes of an order that was found."""
    case = Case(p.devices, p.microbatches)
    return simulated(layers, layout.split, case, listed.order.lanes(p))
