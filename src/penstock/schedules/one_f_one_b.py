"""1F1B: after a short warm-up, one forward and one backward in turn.

GPipe keeps every microbatch alive until the last forward is done. 1F1B starts the backward of a
microbatch as soon as its forward has reached the last device, so device r holds at most p - r of
them; the bubble stays the same.

    p = 4, m = 8
    device 0  F0 F1 F2 F3          B0 F4 B1 ...
    device 1     F0 F1 F2       B0 F3 B1 ...
    device 2        F0 F1    B0 F2 B1 ...
    device 3           F0 B0 F1 B1 ...

Needs: one stage per device.
Claims: makespan (m + p - 1)(F + B), peak min(p - r, m) microbatches. Source: PipeDream-Flush, as
used by Megatron-LM (arXiv:2104.04473, section 2.2.1).
Where we differ: nowhere.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.streams import alternate


@schedule(
    name="1f1b",
    title="one forward, one backward",
    paper="arXiv:2104.04473",
    claims=(
        Claim("makespan", "(m + p - 1)(F + B)", flush_makespan, "arXiv:2104.04473, section 2.2.1"),
        Claim(
            "peak",
            "min(p - r, m)",
            lambda c: live_peak(c, live=lambda r: c.p - r),
            "arXiv:2104.04473, section 2.2.1",
        ),
    ),
    cases=(Case(4, 8), Case(4, 2), Case(2, 1), Case(8, 16), Case(1, 3)),
)
def one_f_one_b(shape: Shape) -> Lanes:
    """Warm up with p - 1 - r forwards, alternate, drain."""
    p, m = shape.devices, shape.microbatches
    return [
        alternate(
            [("F", r, i, 0) for i in range(m)],
            [("B", r, i, 0) for i in range(m)],
            warmup=p - 1 - r,
        )
        for r in range(p)
    ]
