"""Eager 1F1B: 1F1B with a longer warm-up, so that transfers hide behind work.

In 1F1B a device waits for the activation that its neighbour has just sent, so that the latency of
a transfer is added to every microbatch. Let each device run as many forwards ahead as it is
transfers away from the end, there and back: activations then arrive before they are needed. It
costs nearly twice the memory on the first device.

    p = 3, m = 6
    device 0  F0 F1 F2 F3 F4    B0 F5 B1 B2 B3 B4 B5
    device 1     F0 F1 F2    B0 F3 B1 F4 B2 F5 B3 B4 B5
    device 2        F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5

Needs: one stage per device.
Claims: makespan (m + p - 1)(F + B) where B >= F, peak min(2(p - 1 - r) + 1, m) microbatches.
Source: arXiv:2211.05322, whose public code (Alpa) calls it overlap-friendly; "similar latency to
1F1B" is its word for the makespan.
Where we differ: nowhere in order.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.streams import alternate

PAPER = "arXiv:2211.05322"


@schedule(
    name="eager-1f1b",
    title="1F1B that runs ahead, to hide transfers",
    paper=PAPER,
    claims=(
        Claim(
            "makespan",
            "(m + p - 1)(F + B)",
            flush_makespan,
            f"derived from {PAPER}",
            when=lambda c: c.B >= c.F and c.hop == 0,
            condition="B >= F and no latency",
        ),
        Claim(
            "peak",
            "min(2(p - 1 - r) + 1, m)",
            lambda c: live_peak(c, live=lambda r: 2 * (c.p - 1 - r) + 1),
            f"{PAPER}, public code",
        ),
    ),
    cases=(Case(4, 8), Case(4, 2), Case(3, 6), Case(8, 16), Case(1, 3)),
)
def eager_1f1b(shape: Shape) -> Lanes:
    """Warm up with two forwards for each device that follows, alternate, drain."""
    p, m = shape.devices, shape.microbatches
    return [
        alternate(
            [("F", r, i, 0) for i in range(m)],
            [("B", r, i, 0) for i in range(m)],
            warmup=2 * (p - 1 - r),
        )
        for r in range(p)
    ]
