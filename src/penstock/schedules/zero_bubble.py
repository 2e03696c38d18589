"""ZB-H1 and ZB-H2: weight gradients fill the bubble.

A backward computes the gradient of its input, for which the previous stage waits, and the gradient
of its weights, for which only the optimizer waits. Split the two, and weight gradients can run
wherever a device would idle: ZB-H1 does so within the memory of 1F1B, ZB-H2 spends twice that on a
longer warm-up and has no bubble left.

    zb-h1: p = 2, m = 3
    device 0  F0 F1 I0 W0 F2 I1 W1 I2 W2
    device 1  F0 I0 F1 I1 W0 F2 I2 W1 W2

    zb-h2: p = 2, m = 3
    device 0  F0 F1 F2 I0 W0 I1 W1 I2 W2
    device 1  F0 I0 F1 I1 F2 I2 W0 W1 W2

Needs: one stage per device.
Claims: span m(F + I + W) + (p - 1)(F + I - W) for H1 and m(F + I + W) + (p - 1)(F + I - 2W) for H2;
peak p - r activations and r stashes for H1, 2(p - r) - 1 and 2r for H2. Source: arXiv:2401.10241,
section 2, which writes B for I and counts devices from 1.
Where we differ: the closed forms also cover few microbatches. They hold for F >= W, and for
F + I >= 2W in H2; with a longer W the order is right but its span is larger.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import split_peak, weights_fit
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.streams import alternate_split

PAPER = "arXiv:2401.10241"


def _delayed(shape: Shape, depth: int) -> Lanes:
    """Device r warms up with depth (p - 1 - r) forwards; W runs depth r behind I."""
    p, m = shape.devices, shape.microbatches
    return [
        alternate_split(
            [("F", r, i, 0) for i in range(m)],
            [("B", r, i, 0) for i in range(m)],
            warmup=depth * (p - 1 - r),
            delay=depth * r,
        )
        for r in range(p)
    ]


def _span(c: Case, depth: int) -> Fraction:
    exposed = max(1, c.m - depth * (c.p - 1))
    return (c.m + c.p - 1) * (c.F + c.I) + exposed * c.W


def _peak(depth: int) -> Claim:
    live = "p - r" if depth == 1 else "2(p - r) - 1"
    late = "r" if depth == 1 else "2r"
    return Claim(
        "peak",
        f"({live}) act + {late} stash, at most m in all",
        lambda c: split_peak(
            c, live=lambda r: depth * (c.p - 1 - r) + 1, delay=lambda r: depth * r
        ),
        f"{PAPER}, section 2",
        when=lambda c: c.act >= c.stash,
        condition="act >= stash",
    )


@schedule(
    name="zb-h1",
    title="zero bubble within the memory of 1F1B",
    paper=PAPER,
    claims=(
        Claim(
            "span",
            "(m + p - 1)(F + I) + max(1, m - p + 1) W",
            lambda c: _span(c, 1),
            f"{PAPER}, section 2",
            when=lambda c: c.F >= c.W,
            condition="F >= W",
        ),
        Claim(
            "makespan",
            "(m + p - 1)(F + I) + max(1, m - p + 1) W",
            lambda c: _span(c, 1),
            f"derived from {PAPER}",
            when=weights_fit,
            condition="F >= W and I >= W",
        ),
        _peak(1),
    ),
    cases=(Case(4, 8), Case(4, 2), Case(2, 3), Case(8, 16), Case(1, 2)),
)
def zb_h1(shape: Shape) -> Lanes:
    """The warm-up of 1F1B; device r keeps r weight gradients back."""
    return _delayed(shape, depth=1)


@schedule(
    name="zb-h2",
    title="zero bubble for twice the memory",
    paper=PAPER,
    claims=(
        Claim(
            "span",
            "(m + p - 1)(F + I) + max(1, m - 2p + 2) W",
            lambda c: _span(c, 2),
            f"{PAPER}, section 2",
            when=lambda c: c.F >= c.W and c.F + c.I >= 2 * c.W,
            condition="F >= W and F + I >= 2W",
        ),
        _peak(2),
    ),
    cases=(Case(4, 8), Case(4, 4), Case(2, 3), Case(8, 16), Case(1, 2)),
)
def zb_h2(shape: Shape) -> Lanes:
    """Twice the warm-up, so that every device is full; device r keeps 2r weight gradients back."""
    return _delayed(shape, depth=2)
