"""Chronos-ahead: recompute runs where a device would idle.

Recompute right before the backward makes some slots of the grid longer than others, and devices
wait for each other. But a recompute needs nothing from other devices: it can run ahead of its
gradient, wherever there is time and memory for it. Device by device the order is then found by list
scheduling, with the start times of the grid as priorities and a limit to what may be held.

    p = 2, v = 2, m = 2
    device 0  N0 N1 f0 f1 b0 R0 b1 R1 B0 B1
    device 1  N0 N1 f0 b0 f1 b1 R0 B0 R1 B1

Needs: v >= 2; recompute < v; ahead <= m.
Claims: makespan at most (m + p - 1)(2F + B), as 1F1B that recomputes everything; peak at most
(h + ahead)/v, where h counts what the kept stages of device 0 hold on the grid. Source:
arXiv:2503.03182, reconstructed.
Where we differ: how the paper schedules its recompute is not known; this order is ours. Of all
limits up to the one given, and of recompute right before the backward, the fastest is taken.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes, Schedule
from penstock.core.shape import Shape
from penstock.schedules._registry import SEVERAL_STAGES, Case, Claim, Need, Option, schedule
from penstock.schedules.generators.grid import (
    AS_1F1B,
    PAPER,
    SHALLOW,
    SOME_KEPT,
    SlotGrid,
    grid_lanes,
    recompute_first,
)
from penstock.search._prices import cost_of
from penstock.search.offload.run_ahead import Lookahead
from penstock.sim import simulate


def _held(case: Case) -> int:
    """Activations of the kept stages of device 0 on the grid; a microbatch passes with v places."""
    grid = SlotGrid.of(case)
    kept = range(case[SHALLOW], case.v)
    return max(case.v - 1, sum(grid.waits(place) // case.v + 1 for place in kept))


AHEAD = Option(
    "ahead",
    int,
    default=lambda c: min(2, c.m),
    text="how many recomputed activations a device may hold before they are needed, in "
    "addition to those of the other stages; 2 by default",
)


@schedule(
    name="chronos-ahead",
    title="recompute of the first stages wherever a device idles",
    paper=PAPER,
    chunks=None,
    priced=True,
    options=(SHALLOW, AHEAD),
    needs=(
        SEVERAL_STAGES,
        SOME_KEPT,
        Need(
            lambda c: c[AHEAD] <= c.m,
            "ahead <= m",
            "give -o ahead of at most {m}: there are no more microbatches to recompute",
        ),
    ),
    claims=(
        AS_1F1B,
        Claim(
            "peak",
            "(h + ahead)/v, h = what the kept stages of device 0 hold on the grid",
            lambda c: (Fraction(_held(c) + c[AHEAD], c.v) * c.act,) * c.p,
            "by construction",
            bound=True,
        ),
    ),
    cases=(
        Case(4, 8, v=2),
        Case(8, 16, v=2),
        Case(4, 8, v=2, options={"ahead": 3}),
        Case(3, 9, v=3, options={"recompute": 2, "ahead": 2}),
        Case(1, 2, v=2),
    ),
)
def chronos_ahead(shape: Shape, case: Case, recompute: int, ahead: int) -> Lanes:
    """The fastest within the memory; where several are, the one that holds least."""
    grid, least, m, cost = SlotGrid.of(case), _held(case), shape.microbatches, cost_of(case)
    orders = [[recompute_first(lane, recompute * shape.devices) for lane in grid_lanes(grid, m)]]
    orders += [Lookahead(grid, m, recompute, least + more).run() for more in range(1, ahead + 1)]
    return min(orders, key=lambda lanes: simulate(Schedule.of("", shape, lanes), cost).makespan)
