"""SlimPipe: about one microbatch alive, however many devices, with all devices in lock-step.

Pipelines do not save activation memory: the first device holds as many microbatches as there are
stages behind it. Cut sequences into many equal slices, run 1F1B over them so that little more than
one microbatch is alive, and let all devices run their forwards at the same time and their
backwards at the same time, so that they can share work at every step.

    p = 2, m = 2, k = 2
    device 0  F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1
    device 1  F0 F0.1 B0.1 F1 B0 F1.1 B1.1 B1

Needs: slack 1 or 2; k >= p for v > 1.
Claims: makespan (m + (p - 1)/(kv))(F + B), idle share (p - 1)/(mkv + p - 1), peak
1 + slack (p - 1 - r)/(kv) microbatches. Source: arXiv:2504.14519, for slices of equal time.
Where we differ: the exchange of attention work that makes slice times equal is a schedule of its
own. The released code wants enough microbatches to fill the target; here it is clamped.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_bubble, flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.schedules.generators.lockstep import lock_step_lanes

SLACK = Option(
    "slack",
    int,
    default=lambda c: 2,
    text="units that a device runs ahead of the next one: 2 keeps the lock-step and a "
    "step to hide transfers, 1 needs less memory",
)


@schedule(
    name="slimpipe",
    title="slices in lock-step, about one microbatch in memory",
    paper="arXiv:2504.14519",
    chunks=None,
    default_chunks=1,
    sliced=True,
    options=(SLACK,),
    needs=(
        Need(
            lambda c: c[SLACK] <= 2,
            "slack is 1 or 2",
            "give -o slack=1 or -o slack=2",
        ),
        Need(
            lambda c: c.v == 1 or c.k >= c.p,
            "k >= p where a device has several stages",
            "raise -k to {p} or more, or give -v 1",
        ),
    ),
    claims=(
        Claim("makespan", "(m + (p - 1)/(kv))(F + B)", flush_makespan, "arXiv:2504.14519"),
        Claim("bubble_makespan", "(p - 1)/(mkv + p - 1)", flush_bubble, "arXiv:2504.14519"),
        Claim(
            "peak",
            "min(kv + slack (p - 1 - r), mkv)/(kv)",
            lambda c: live_peak(c, live=lambda r: c.k * c.v + c[SLACK] * (c.p - 1 - r)),
            "arXiv:2504.14519",
        ),
    ),
    cases=(
        Case(4, 2, v=2, k=8),
        Case(4, 3, k=4),
        Case(4, 3, k=4, options={"slack": 1}),
        Case(8, 2, v=5, k=16),
        Case(3, 2, v=2, k=4),
        Case(4, 1, v=2, k=4),
        Case(1, 2, v=2, k=2),
    ),
)
def slimpipe(shape: Shape, slack: int) -> Lanes:
    """Every device runs ahead of the next one by the slack."""
    return lock_step_lanes(shape, slack)
