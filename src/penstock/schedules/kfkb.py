"""kFkB: 1F1B whose unit is a group of microbatches.

In 1F1B every op waits for the transfer just sent, so a slow or shared network stalls the devices
although it carries little. Run k forwards and k backwards in turn instead, and the transfer of one
microbatch hides behind the computation of the other members of its group, for k times the memory.

    p = 2, m = 4, group = 2
    device 0  F0 F1 F2 F3 B0 B1 B2 B3
    device 1  F0 F1 B0 B1 F2 F3 B2 B3

Needs: one stage per device, 1 <= group <= m.
Claims: makespan (m + p - 1)(F + B) without transfer times, whatever the group; peak
min(group (p - r), m). Transfers of latency c are hidden once 2c <= (group - 1)(F + B), and then
add 2c(p - 1) in all. Source: derived from the order of arXiv:2303.01675.
Where we differ: the group is a fixed option; the paper picks it again while training, which is a
policy of training runs here.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.schedules.generators.streams import alternate

GROUP = Option(
    "group",
    int,
    default=lambda c: min(2, c.m),
    text="the number k of microbatches that run as one group",
)


@schedule(
    name="kfkb",
    title="k forwards, k backwards in turn",
    paper="arXiv:2303.01675",
    options=(GROUP,),
    needs=(
        Need(
            lambda c: c[GROUP] <= c.m,
            "a group holds at most the m microbatches",
            "lower -o group to {m} or less, or raise -m to {group} or more",
        ),
    ),
    claims=(
        Claim("makespan", "(m + p - 1)(F + B)", flush_makespan, "derived from arXiv:2303.01675"),
        Claim(
            "peak",
            "min(group (p - r), m)",
            lambda c: live_peak(c, live=lambda r: c[GROUP] * (c.p - r)),
            "derived from arXiv:2303.01675",
        ),
    ),
    cases=(
        Case(4, 8),
        Case(4, 7),
        Case(4, 16, options={"group": 4}),
        Case(4, 8, options={"group": 8}),
        Case(1, 3),
        Case(8, 32, options={"group": 1}),
    ),
)
def kfkb(shape: Shape, group: int) -> Lanes:
    """The order of 1F1B over groups, each laid out as its microbatches; the last may be short."""
    p, m = shape.devices, shape.microbatches
    groups = [range(first, min(first + group, m)) for first in range(0, m, group)]
    return [
        [
            op
            for ops in alternate(
                [[("F", r, i, 0) for i in members] for members in groups],
                [[("B", r, i, 0) for i in members] for members in groups],
                warmup=p - 1 - r,
            )
            for op in ops
        ]
        for r in range(p)
    ]
