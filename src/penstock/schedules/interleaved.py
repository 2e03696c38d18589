"""Interleaved 1F1B: several small stages per device, visited in turn.

The bubble of 1F1B is p - 1 times the work of a stage, however the batch is cut. Give each device v
stages that lie p apart in the model, and the same p - 1 steps of waiting are v times shorter; the
price is v times as many transfers and somewhat more memory.

    p = 2, v = 2, m = 2 (F is the first stage of a device, f its second)
    device 0  F0 F1 f0 f1 b0 b1 B0 B1
    device 1  F0 F1 f0 b0 f1 b1 B0 B1

Needs: v >= 2; p <= group <= m, and a last group of at least p if it is short.
Claims: makespan (m + (p - 1)/v)(F + B), peak min(2(p - 1 - r) + (v - 1) group + 1, vm)/v.
Source: arXiv:2104.04473, section 2.2.2; groups other than p are those of Megatron-LM.
Where we differ: the paper has group = p and p | m, and that is the default. Megatron-LM once ran
all forwards first when m = p; it no longer does, and neither do we.
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


def _last_group_fits(c: Case, group: int) -> bool:
    return c.m % group == 0 or c.m % group >= c.p


def _smallest_group(c: Case) -> int:
    return next((g for g in range(c.p, c.m + 1) if _last_group_fits(c, g)), c.p)


GROUP = Option(
    "group",
    int,
    default=_smallest_group,
    text="how many microbatches a stage runs before the device changes to its next stage; "
    "p where p divides m, else the smallest that fits",
)


@schedule(
    name="interleaved",
    title="1F1B with several stages per device",
    paper="arXiv:2104.04473",
    chunks=None,
    options=(GROUP,),
    needs=(
        SEVERAL_STAGES,
        Need(
            lambda c: c.p <= c[GROUP] <= c.m,
            "p <= group <= m",
            "give at least {p} microbatches, and -o group between {p} and their number",
        ),
        Need(
            lambda c: _last_group_fits(c, c[GROUP]),
            "the last group, if it is short, still holds p microbatches",
            "leave -o group out, or make -m a multiple of {group}",
        ),
    ),
    claims=(
        Claim(
            "makespan", "(m + (p - 1)/v)(F + B)", flush_makespan, "arXiv:2104.04473, section 2.2.2"
        ),
        Claim(
            "peak",
            "min(2(p - 1 - r) + (v - 1) group + 1, vm)/v",
            lambda c: live_peak(c, lambda r: 2 * (c.p - 1 - r) + (c.v - 1) * c[GROUP] + 1),
            "derived from the warm-up of Megatron-LM",
        ),
    ),
    cases=(
        Case(4, 8, v=2),
        Case(4, 16, v=2, options={"group": 8}),
        Case(4, 10, v=2, options={"group": 6}),
        Case(4, 10, v=3),
        Case(8, 16, v=2),
        Case(1, 3, v=2),
        Case(2, 5, v=2, options={"group": 3}),
    ),
)
def interleaved(shape: Shape, group: int) -> Lanes:
    """The groups of microbatches walk through a device's stages; backwards in mirrored order."""
    p, chunks = shape.devices, stages_per_device(shape)
    forwards, backwards = looped_tables(shape, group)
    return [
        alternate(
            table_ops("F", forwards, stages),
            table_ops("B", backwards, stages),
            warmup=2 * (p - 1 - r) + (chunks - 1) * group,
        )
        for r, stages in enumerate(stages_of(looped_placement(shape)))
    ]
