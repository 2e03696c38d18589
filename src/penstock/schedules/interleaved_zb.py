"""Interleaved zero bubble: several stages per device, and weight gradients in the bubble.

Interleaving makes the steps of the bubble v times shorter, splitting the backward fills most of
what is left. Together they leave p - 1 short steps, with the same memory on every device.

    p = 2, v = 2, m = 2 (F is the first stage of a device, f its second)
    device 0  F0 F1 f0 f1 i0 w0 i1 w1 I0 W0 I1 W1
    device 1  F0 F1 f0 i0 f1 i1 w0 I0 w1 I1 W0 W1

Needs: max(1, m // p) rounds that divide m evenly.
Claims: makespan m(F + I + W) + (p - 1)(F + I - W)/v; peak (v - 1) m/rounds + p - r activations and
r stashes of 1/v, which is p microbatches on every device for p | m. Source: derived from the order
of PyTorch's ScheduleInterleavedZeroBubble, after arXiv:2401.10241.
Where we differ: nowhere; one stage per device gives ZB-H1.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import split_peak, weights_fit
from penstock.schedules._registry import Case, Claim, Need, schedule
from penstock.schedules.generators.placements import (
    looped_placement,
    stages_of,
    stages_per_device,
)
from penstock.schedules.generators.streams import alternate_split, looped_tables, table_ops

SOURCE = "derived from PyTorch's ScheduleInterleavedZeroBubble"


def _rounds(p: int, m: int) -> int:
    return max(1, m // p)


def _makespan(c: Case) -> Fraction:
    exposed = max(1, c.v * c.m - c.p + 1)
    return ((c.v * c.m + c.p - 1) * (c.F + c.I) + exposed * c.W) / c.v


@schedule(
    name="interleaved-zb",
    title="several stages per device, weight gradients in the bubble",
    paper="arXiv:2401.10241",
    chunks=None,
    needs=(
        Need(
            lambda c: c.m % _rounds(c.p, c.m) == 0,
            "the rounds max(1, m // p) divide m",
            "make -m a multiple of {p}",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "m(F + I + W) + (p - 1)(F + I - W)/v",
            _makespan,
            SOURCE,
            when=lambda c: c.m >= c.p and weights_fit(c),
            condition="m >= p, F >= W and I >= W",
        ),
        Claim(
            "peak",
            "(((v - 1) m/rounds + p - r) act + r stash)/v, at most m in all",
            lambda c: split_peak(
                c,
                live=lambda r: (c.v - 1) * (c.m // _rounds(c.p, c.m)) + c.p - r,
                delay=lambda r: r,
            ),
            SOURCE,
            when=lambda c: c.act >= c.stash,
            condition="act >= stash",
        ),
    ),
    cases=(
        Case(4, 8, v=2),
        Case(4, 10, v=2),
        Case(4, 8, v=1),
        Case(4, 12, v=3),
        Case(4, 3, v=2),
        Case(1, 2, v=2),
    ),
)
def interleaved_zb(shape: Shape) -> Lanes:
    """The table of interleaving with a short warm-up; device r keeps r weight gradients back."""
    p, chunks = shape.devices, stages_per_device(shape)
    group = shape.microbatches // _rounds(p, shape.microbatches)
    forwards, backwards = looped_tables(shape, group)
    return [
        alternate_split(
            table_ops("F", forwards, stages),
            table_ops("B", backwards, stages),
            warmup=(chunks - 1) * group + p - 1 - r,
            delay=r,
        )
        for r, stages in enumerate(stages_of(looped_placement(shape)))
    ]
