"""ZB-1p, ZB-2p and any other memory: zero-bubble orders built for measured times.

ZB-H1 and ZB-H2 are drawn for equal times. With measured times and latency between devices they
leave gaps, and the memory that is there is rarely just theirs. A constructor that looks at the
clocks fills the gaps: it takes the times, the latency and a memory limit, and keeps the best of
eight settings.

    zb-1p: p = 2, m = 3
    device 0  F0 F1 I0 W0 F2 I1 W1 I2 W2
    device 1  F0 I0 F1 I1 W0 F2 I2 W1 W2

    zb-2p: p = 2, m = 3
    device 0  F0 F1 F2 I0 W0 I1 W1 I2 W2
    device 1  F0 I0 F1 I1 F2 I2 W0 W1 W2

    zb-auto: p = 2, m = 3, limit = 1
    device 0  F0 I0 W0 F1 I1 W1 F2 I2 W2
    device 1  F0 I0 W0 F1 I1 W1 F2 I2 W2

Needs: one stage per device; a limit that holds one microbatch.
Claims: peak at most the limit, which is that of p microbatches for ZB-1p and of 2p for ZB-2p; at
equal times and n >= p microbatches in the limit, span m(F + I + W) + max(0, 2p - 1 - min(n, m)) F:
that of ZB-H1 for n = p, no bubble for n = 2p - 1. Source: arXiv:2401.10241, section 3, which writes
B for I.
Where we differ: with a stash larger than an activation, a microbatch counts as its stash, so that
its input gradient always finds room. The integer program that the paper starts from this order is
not part of it.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._limit import LIMIT
from penstock.schedules._registry import Case, Claim, Need, schedule
from penstock.schedules.generators.board import Budget
from penstock.schedules.generators.zero_bubble_search import search_zero_bubble

PAPER = "arXiv:2401.10241"


def _equal_times(c: Case) -> bool:
    return c.F == c.I == c.W and c.hop == 0


def _span(c: Case, alive: int) -> Fraction:
    """At equal times the first device idles until the first gradient is back, and no longer."""
    return c.m * c.step + max(0, 2 * c.p - 1 - min(alive, c.m)) * c.F


def _lanes(case: Case, limit: Fraction) -> Lanes:
    return search_zero_bubble(case.p, case.m, Budget.of(case, limit))


@schedule(
    name="zb-1p",
    title="zero bubble for measured times, within the memory of 1F1B",
    paper=PAPER,
    priced=True,
    claims=(
        Claim(
            "span",
            "m(F + I + W) + max(p - 1, 2p - 1 - m) F",
            lambda c: _span(c, c.p),
            f"{PAPER}, section 3",
            when=_equal_times,
            condition="F = I = W and no latency",
        ),
        Claim(
            "peak",
            "p max(act, stash)",
            lambda c: (c.p * c.held,) * c.p,
            f"{PAPER}, section 3",
            bound=True,
        ),
    ),
    cases=(Case(4, 8), Case(4, 2), Case(2, 3), Case(8, 16), Case(1, 2)),
)
def zb_1p(shape: Shape, case: Case) -> Lanes:
    """The memory of p microbatches."""
    return _lanes(case, case.p * case.held)


@schedule(
    name="zb-2p",
    title="zero bubble for measured times, in twice the memory",
    paper=PAPER,
    priced=True,
    claims=(
        Claim(
            "span",
            "m(F + I + W) + max(0, 2p - 1 - m) F",
            lambda c: _span(c, 2 * c.p),
            f"{PAPER}, section 3",
            when=_equal_times,
            condition="F = I = W and no latency",
        ),
        Claim(
            "peak",
            "2p max(act, stash)",
            lambda c: (2 * c.p * c.held,) * c.p,
            f"{PAPER}, section 3",
            bound=True,
        ),
    ),
    cases=(Case(4, 8), Case(4, 4), Case(2, 3), Case(8, 16), Case(1, 2)),
)
def zb_2p(shape: Shape, case: Case) -> Lanes:
    """The memory of 2p microbatches."""
    return _lanes(case, 2 * case.p * case.held)


@schedule(
    name="zb-auto",
    title="zero bubble for measured times, within a memory limit",
    paper=PAPER,
    priced=True,
    options=(LIMIT,),
    needs=(
        Need(
            lambda c: c[LIMIT] >= c.held,
            "limit is at least act and at least stash",
            "raise -o limit={limit} to what one microbatch holds, or make microbatches smaller",
        ),
    ),
    claims=(
        Claim(
            "span",
            "m(F + I + W) + max(0, 2p - 1 - min(n, m)) F, n = floor(limit / max(act, stash))",
            lambda c: _span(c, int(c[LIMIT] // c.held) if c.held else c.m),
            f"{PAPER}, section 3; derived between p and 2p",
            when=lambda c: _equal_times(c) and c[LIMIT] >= c.p * c.held,
            condition="F = I = W, no latency, and limit >= p max(act, stash)",
        ),
        Claim(
            "peak",
            "limit",
            lambda c: (c[LIMIT],) * c.p,
            f"{PAPER}, section 3",
            bound=True,
        ),
    ),
    cases=(
        Case(4, 8, options={"limit": 6}),
        Case(4, 8),
        Case(4, 8, options={"limit": Fraction(7, 2)}),
        Case(4, 2, options={"limit": 1}),
        Case(8, 16, options={"limit": 12}),
        Case(1, 2),
    ),
)
def zb_auto(shape: Shape, case: Case, limit: Fraction) -> Lanes:
    """The memory that the user gives."""
    return _lanes(case, limit)
