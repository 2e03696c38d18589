"""Seq1F1B with zero bubble: slices of the sequence, and weight gradients in the bubble.

Slicing shrinks the bubble by the number of slices; what is left is still waiting time in which
weight gradients could run. Split the backward of each slice and keep r weight gradients back on
device r, as ZB-H1 does with whole microbatches.

    p = 2, m = 2, k = 2
    device 0  F0 F0.1 F1 I0.1 W0.1 F1.1 I0 W0 I1.1 W1.1 I1 W1
    device 1  F0 F0.1 I0.1 F1 I0 W0.1 F1.1 I1.1 W0 I1 W1.1 W1

Needs: one stage per device.
Claims: makespan m(F + I + W) + (p - 1)(F + I - W)/k; peak p - 1 - r + k activations and r stashes
of 1/k. Source: arXiv:2406.03488, which writes B for I.
Where we differ: the closed form also covers few microbatches, where not every weight gradient that
is kept back finds a bubble: it holds for F >= W and I >= W.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import split_peak, weights_fit
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.streams import alternate_split, backward_units, forward_units


def _makespan(c: Case) -> Fraction:
    hidden = min(c.p - 1, (c.m - 1) * c.k)
    return c.m * c.step + ((c.p - 1) * (c.F + c.I) - hidden * c.W) / c.k


@schedule(
    name="seq1f1b-zb",
    title="1F1B over slices, weight gradients in the bubble",
    paper="arXiv:2406.03488",
    sliced=True,
    claims=(
        Claim(
            "makespan",
            "m(F + I + W) + ((p - 1)(F + I) - min(p - 1, (m - 1)k) W)/k",
            _makespan,
            "arXiv:2406.03488; derived for (m - 1)k < p - 1",
            when=weights_fit,
            condition="F >= W and I >= W",
        ),
        Claim(
            "peak",
            "((p - 1 - r + k) act + r stash)/k, at most m in all",
            lambda c: split_peak(c, live=lambda r: c.p - 1 - r + c.k, delay=lambda r: r),
            "arXiv:2406.03488",
            when=lambda c: c.act >= c.stash,
            condition="act >= stash",
        ),
    ),
    cases=(Case(4, 8, k=2), Case(4, 8, k=4), Case(4, 8), Case(4, 1, k=4), Case(3, 2, k=3)),
)
def seq1f1b_zb(shape: Shape) -> Lanes:
    """The warm-up of Seq1F1B; device r keeps r weight gradients back."""
    forwards, backwards = forward_units(shape), backward_units(shape)
    return [
        alternate_split(
            [("F", r, i, s) for i, s in forwards],
            [("B", r, i, s) for i, s in backwards],
            warmup=shape.devices - 1 - r + shape.slices[0] - 1,
            delay=r,
        )
        for r in range(shape.devices)
    ]
