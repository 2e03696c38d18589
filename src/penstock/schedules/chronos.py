"""Chronos: the bubble of 1F1B in less memory, because activations wait for nothing.

In 1F1B the first device holds p microbatches whole. Give each device v stages that lie p apart:
what its last stage saves is needed again soon, what its first stage saves has to wait for the whole
model. If nothing waits longer than that, a device holds about (v + 1)/(2v) of what 1F1B holds. The
order comes from a grid of slots, a forward and a backward each, that turn from stage to stage; only
where a microbatch comes round to the first device does it wait for its slot.

    p = 2, v = 2, m = 3 (F is the first stage of a device, f its second)
    device 0  F0 f0 F1 b0 f1 F2 b1 f2 B0 b2 B1 B2
    device 1  F0 f0 b0 F1 f1 b1 F2 B0 f2 b2 B1 B2

Recompute pays most for the first stages, whose activations live longest: chronos-recompute keeps
only the inputs of the first half, and runs each of their forwards again right before its backward.

    chronos-recompute: p = 2, v = 2, m = 2
    device 0  N0 f0 N1 b0 f1 b1 R0 B0 R1 B1
    device 1  N0 f0 b0 N1 f1 b1 R0 B0 R1 B1

Needs: v >= 2; recompute < v.
Claims: makespan (m + p - 1)(F + B), as 1F1B; peak (p - r + d)/v, where d is the mean of the slots
from F to B over the stages of the last device. With recompute: makespan at most
(m + p - 1)(2F + B), as 1F1B that recomputes everything, and peak (floor((p - r)/2) + 1)/2 for v = 2
and B = 2F. Source: arXiv:2503.03182, reconstructed.
Where we differ: the paper's figures were not at hand. The grid is a reconstruction that has the
properties the paper claims; its order follows the times of F and B.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._registry import SEVERAL_STAGES, Case, Claim, schedule
from penstock.schedules.generators.grid import (
    AS_1F1B,
    PAPER,
    SHALLOW,
    SOME_KEPT,
    SlotGrid,
    grid_lanes,
    recompute_first,
)


def _peak(case: Case) -> tuple[Fraction, ...]:
    grid = SlotGrid.of(case)
    late = Fraction(sum(grid.waits(place, case.p - 1) for place in range(case.v)), case.v)
    return tuple((case.p - r + late) / case.v * case.act for r in range(case.p))


def _fills(case: Case) -> bool:
    """Whether the last microbatch goes forward on stage 0 no sooner than the first comes back."""
    return case.m > SlotGrid.of(case).waits(0) // case.v


@schedule(
    name="chronos",
    title="1F1B that keeps activations as briefly as it can",
    paper=PAPER,
    chunks=None,
    priced=True,
    needs=(SEVERAL_STAGES,),
    claims=(
        Claim(
            "makespan",
            "(m + p - 1)(F + B)",
            lambda c: (c.m + c.p - 1) * c.step,
            f"{PAPER}, reconstructed",
        ),
        Claim(
            "peak",
            "(p - r + d)/v, d = mean slots from F to B on the last device",
            _peak,
            f"derived from the grid; {PAPER} has (v + 1)/(2v) of 1F1B as the limit",
            when=_fills,
            condition="m > slots from F to B of stage 0, over v",
        ),
    ),
    cases=(
        Case(4, 8, v=2),
        Case(4, 2, v=2),
        Case(8, 16, v=2),
        Case(6, 12, v=3),
        Case(8, 16, v=4),
        Case(3, 7, v=3),
        Case(1, 2, v=2),
    ),
)
def chronos(shape: Shape, case: Case) -> Lanes:
    """The grid in order of time; without the times, warm-up and drain close up by themselves."""
    return grid_lanes(SlotGrid.of(case), shape.microbatches)


@schedule(
    name="chronos-recompute",
    title="chronos that recomputes the first stages",
    paper=PAPER,
    chunks=None,
    priced=True,
    options=(SHALLOW,),
    needs=(SEVERAL_STAGES, SOME_KEPT),
    claims=(
        AS_1F1B,
        Claim(
            "peak",
            "(floor((p - r)/2) + 1)/2",
            lambda c: tuple(Fraction((c.p - r) // 2 + 1, 2) * c.act for r in range(c.p)),
            f"{PAPER}, reconstructed",
            when=lambda c: c.v == 2 and c.B == 2 * c.F and _fills(c),
            condition="v = 2, B = 2F, m > slots from F to B of stage 0, over v",
        ),
        Claim(
            "peak",
            "(p - r + d)/v, d = mean slots from F to B on the last device",
            _peak,
            "what it is without recompute",
            bound=True,
        ),
    ),
    cases=(
        Case(4, 8, v=2),
        Case(4, 2, v=2),
        Case(8, 16, v=2),
        Case(6, 12, v=3),
        Case(4, 12, v=4, options={"recompute": 3}),
        Case(1, 2, v=2),
    ),
)
def chronos_recompute(shape: Shape, case: Case, recompute: int) -> Lanes:
    """The same grid; the first stages keep only their inputs."""
    lanes = grid_lanes(SlotGrid.of(case), shape.microbatches)
    return [recompute_first(lane, recompute * shape.devices) for lane in lanes]
