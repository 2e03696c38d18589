"""GPipe: all forwards, then all backwards.

A model cut into stages keeps one device busy and the others waiting. Cut the batch into
microbatches as well, and the devices work on different microbatches at the same time; the price is
that all of them are alive when the first backward begins.

    p = 2, m = 3
    device 0  F0 F1 F2          B0 B1 B2
    device 1     F0 F1 F2 B0 B1 B2

Needs: one stage per device.
Claims: makespan (m + p - 1)(F + B), peak m on every device. Source: arXiv:1811.06965.
Where we differ: the paper runs the backwards from the last microbatch to the first. Here they
ascend, as in Megatron-LM and PyTorch, so that gradients add up in the order of the microbatches;
time and memory are the same.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, schedule


@schedule(
    name="gpipe",
    title="all forwards, then all backwards",
    paper="arXiv:1811.06965",
    claims=(
        Claim("makespan", "(m + p - 1)(F + B)", flush_makespan, "arXiv:1811.06965, section 2.3"),
        Claim(
            "peak",
            "m",
            lambda c: live_peak(c, live=lambda r: c.m),
            "arXiv:2104.04473, section 2.2.1",
        ),
    ),
    cases=(Case(4, 8), Case(4, 2), Case(1, 3), Case(8, 16)),
)
def gpipe(shape: Shape) -> Lanes:
    """One window of forwards and one of backwards, on every device."""
    batch = range(shape.microbatches)
    return [
        [("F", r, i, 0) for i in batch] + [("B", r, i, 0) for i in batch]
        for r in range(shape.devices)
    ]
