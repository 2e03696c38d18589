"""TeraPipe: GPipe whose unit is a slice of a sequence.

A batch of few long sequences has few microbatches, and a pipeline of few microbatches is mostly
bubble. A causal model lets a stage start on the first slice of a sequence while the previous stage
works on the next slice, so the bubble shrinks by the number of slices; the memory does not.

    p = 2, m = 1, k = 3
    device 0  F0 F0.1 F0.2           B0.2 B0.1 B0
    device 1     F0 F0.1 F0.2 B0.2 B0.1 B0

Needs: one stage per device.
Claims: makespan (m + (p - 1)/k)(F + B), peak m on every device. Source: arXiv:2102.07988, for
slices of equal time.
Where we differ: slices are equal here; the paper's choice of lengths is a matter of the plan.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.streams import forward_units


@schedule(
    name="terapipe",
    title="all forwards, then all backwards, over slices",
    paper="arXiv:2102.07988",
    sliced=True,
    claims=(
        Claim("makespan", "(m + (p - 1)/k)(F + B)", flush_makespan, "arXiv:2102.07988"),
        Claim("peak", "m", lambda c: live_peak(c, live=lambda r: c.m * c.k), "arXiv:2102.07988"),
    ),
    cases=(Case(4, 2, k=4), Case(4, 1, k=8), Case(4, 4), Case(1, 2, k=2), Case(2, 3, k=3)),
)
def terapipe(shape: Shape) -> Lanes:
    """The whole batch forward, and back the way it came."""
    units = forward_units(shape)
    return [
        [("F", r, i, s) for i, s in units] + [("B", r, i, s) for i, s in reversed(units)]
        for r in range(shape.devices)
    ]
