"""Seq1F1B: 1F1B whose unit is a slice of a sequence instead of a whole one.

With long sequences few microbatches fit a batch, and each holds a whole sequence of activations.
Causal attention lets a slice go forward as soon as the earlier slices have left their keys and
values, and backward as soon as the later ones have left the gradients of those. Bubble and memory
in flight shrink by about the number of slices k.

    p = 2, m = 2, k = 2
    device 0  F0 F0.1 F1 B0.1 F1.1 B0 B1.1 B1
    device 1  F0 F0.1 B0.1 F1 B0 F1.1 B1.1 B1

Needs: one stage per device.
Claims: makespan (m + (p - 1)/k)(F + B), idle share (p - 1)/(mk + p - 1), peak (p - 1 - r + k)/k.
Source: arXiv:2406.03488, for slices of equal time.
Where we differ: slices are equal here; unequal ones are a matter of the plan.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_bubble, flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.streams import alternate, backward_units, forward_units


@schedule(
    name="seq1f1b",
    title="1F1B over slices of the sequence",
    paper="arXiv:2406.03488",
    sliced=True,
    claims=(
        Claim("makespan", "(m + (p - 1)/k)(F + B)", flush_makespan, "arXiv:2406.03488"),
        Claim("bubble_makespan", "(p - 1)/(mk + p - 1)", flush_bubble, "arXiv:2406.03488"),
        Claim(
            "peak",
            "min(p - 1 - r + k, mk)/k",
            lambda c: live_peak(c, live=lambda r: c.p - 1 - r + c.k),
            "arXiv:2406.03488",
        ),
    ),
    cases=(Case(4, 8, k=4), Case(4, 4, k=2), Case(4, 1, k=4), Case(4, 8), Case(8, 2, k=3)),
)
def seq1f1b(shape: Shape) -> Lanes:
    """Warm up with the p - 1 - r forwards of 1F1B and the k - 1 that complete a sequence."""
    forwards, backwards = forward_units(shape), backward_units(shape)
    return [
        alternate(
            [("F", r, i, s) for i, s in forwards],
            [("B", r, i, s) for i, s in backwards],
            warmup=shape.devices - 1 - r + shape.slices[0] - 1,
        )
        for r in range(shape.devices)
    ]
