"""Seq1F1B-I: slices of the sequence on several stages per device.

Slicing makes the unit of the pipeline k times smaller, several stages per device make it v times
smaller again, and the bubble with it. The slices of a microbatch must not be torn apart by the
turn to the next stage, so the groups that walk through the stages hold whole microbatches.

    p = 2, v = 2, m = 2, k = 2 (F is the first stage of a device, f its second)
    device 0  F0 F0.1 f0 f0.1 F1 F1.1 b0.1 f1 b0 f1.1 B0.1 B0 b1.1 b1 B1.1 B1
    device 1  F0 F0.1 f0 f0.1 b0.1 F1 b0 F1.1 B0.1 f1 B0 f1.1 b1.1 b1 B1.1 B1

Needs: v >= 2; a group in slices that is a multiple of k, at least p, and divides mk.
Claims: makespan (m + (p - 1)/(kv))(F + B), peak ((v - 1) group + 2(p - 1 - r) + k)/(kv).
Source: arXiv:2406.03488, whose released code has group = p and whose picture has group = pk.
Where we differ: any legal group; the default is the smallest, which needs least memory. The
released code runs all forwards first when m = p; we do not.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import SEVERAL_STAGES, Case, Claim, Need, Option, schedule
from penstock.schedules.generators.placements import (
    looped_placement,
    stages_of,
    stages_per_device,
)
from penstock.schedules.generators.streams import alternate, looped_tables, table_ops


def _smallest_group(c: Case) -> int:
    """The fewest whole microbatches that are p slices or more and divide the batch."""
    fewest = -(-c.p // c.k)
    return c.k * next((n for n in range(fewest, c.m + 1) if c.m % n == 0), fewest)


GROUP = Option(
    "group",
    int,
    default=_smallest_group,
    text="how many slices a stage runs before the device changes to its next stage; "
    "the smallest that fits",
)


@schedule(
    name="seq1f1b-i",
    title="1F1B over slices, with several stages per device",
    paper="arXiv:2406.03488",
    chunks=None,
    sliced=True,
    options=(GROUP,),
    needs=(
        SEVERAL_STAGES,
        Need(
            lambda c: c[GROUP] % c.k == 0,
            "group is a multiple of k, so that no microbatch is divided between groups",
            "leave -o group out, or give a multiple of {k}",
        ),
        Need(
            lambda c: c[GROUP] >= c.p,
            "group >= p",
            "leave -o group out, or give at least {p}",
        ),
        Need(
            lambda c: c.m * c.k % c[GROUP] == 0,
            "group divides the mk slices of the batch",
            "change -m so that its {k} slices each fill groups of {group}, or change -o group",
        ),
    ),
    claims=(
        Claim("makespan", "(m + (p - 1)/(kv))(F + B)", flush_makespan, "arXiv:2406.03488"),
        Claim(
            "peak",
            "min((v - 1) group + 2(p - 1 - r) + k, mkv)/(kv)",
            lambda c: live_peak(c, lambda r: (c.v - 1) * c[GROUP] + 2 * (c.p - 1 - r) + c.k),
            "derived from arXiv:2406.03488",
        ),
    ),
    cases=(
        Case(4, 8, v=2, k=2),
        Case(4, 8, v=2, k=2, options={"group": 8}),
        Case(4, 8, v=2, k=8),
        Case(8, 16, v=2, k=4),
        Case(4, 8, v=2),
        Case(4, 6, v=3, k=3),
        Case(4, 1, v=2, k=4),
    ),
)
def seq1f1b_i(shape: Shape, group: int) -> Lanes:
    """Groups of slices walk through a device's stages; the warm-up completes a sequence."""
    p, chunks = shape.devices, stages_per_device(shape)
    forwards, backwards = looped_tables(shape, group)
    return [
        alternate(
            table_ops("F", forwards, stages),
            table_ops("B", backwards, stages),
            warmup=(chunks - 1) * group + 2 * (p - 1 - r) + shape.slices[0] - 1,
        )
        for r, stages in enumerate(stages_of(looped_placement(shape)))
    ]
