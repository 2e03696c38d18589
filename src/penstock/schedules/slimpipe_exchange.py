"""SlimPipe with exchange: devices at late slices lend attention work to devices at early ones.

Slices of equal length keep memory flat, but under causal attention a late slice is more work than
an early one, and in lock-step everybody waits for the latest. At every step the devices are at
different slices, so a device with many past keys and values hands some of them, with its queries,
to one that has few, and gets partial results back.

    slimpipe-exchange: p = 2, m = 2, k = 4 (device 1 lends one slice of F0.3 to F1, of B1.3 to B0)
    device 0  F0 F0.1 F0.2 F0.3 F1 F1.1 B0.3 F1.2 B0.2 F1.3 B0.1 B0 B1.3 B1.2 B1.1 B1
    device 1  F0 F0.1 F0.2 F0.3 B0.3 F1 B0.2 F1.1 B0.1 F1.2 B0 F1.3 B1.3 B1.2 B1.1 B1

    slimpipe-level: p = 2, m = 2, k = 4
    device 0  F0 F0.1 F0.2 F0.3 F1 F1.1 B0.3 F1.2 B0.2 F1.3 B0.1 B0 B1.3 B1.2 B1.1 B1
    device 1  F0 F0.1 F0.2 F0.3 B0.3 F1 B0.2 F1.1 B0.1 F1.2 B0 F1.3 B1.3 B1.2 B1.1 B1

Needs: k >= p for v > 1; most <= k.
Claims: makespan (m + (p - 1)/(kv))(F + B) and peak 1 + 2(p - 1 - r)/(kv) microbatches, the closed
forms of slices with equal times. Source: arXiv:2504.14519 and the balancer of its released code.
Where we differ: the released code exchanges only where devices have several stages; the same rule
serves one. Levelling all devices instead of pairs is ours. The bytes of a loan are counted apart
(penstock.cost.exchange), not on the simulated links.
"""

from penstock.core.schedule import Draft
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_bubble, flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.schedules.generators.exchange import level, loans, pair_up
from penstock.schedules.generators.lockstep import lock_step_lanes

PAPER = "arXiv:2504.14519"
UNITS_AHEAD = 2
"""Units that a device runs ahead of the next one, so that all are in lock-step."""

FILLED = Need(
    lambda c: c.v == 1 or c.k >= c.p,
    "k >= p where a device has several stages",
    "raise -k to {p} or more, or give -v 1",
)

CLAIMS = (
    Claim(
        "makespan", "(m + (p - 1)/(kv))(F + B)", flush_makespan, f"{PAPER}, for equal slice times"
    ),
    Claim("bubble_makespan", "(p - 1)/(mkv + p - 1)", flush_bubble, PAPER),
    Claim(
        "peak",
        "min(kv + 2(p - 1 - r), mkv)/(kv)",
        lambda c: live_peak(c, live=lambda r: c.k * c.v + UNITS_AHEAD * (c.p - 1 - r)),
        PAPER,
    ),
)

CASES = (
    Case(4, 2, k=8),
    Case(4, 2, v=2, k=8),
    Case(3, 2, v=2, k=4),
    Case(8, 2, v=2, k=16),
    Case(1, 2, k=2),
    Case(4, 1, k=2),
)


MOST = Option(
    "most",
    int,
    default=lambda c: c.k,
    text="the most key/value slices that one op lends; all that evens out its pair if left out",
)


@schedule(
    name="slimpipe-exchange",
    title="slices in lock-step, attention work exchanged in pairs",
    paper=PAPER,
    chunks=None,
    default_chunks=1,
    sliced=True,
    options=(MOST,),
    needs=(
        FILLED,
        Need(lambda c: c[MOST] <= c.k, "most <= k", "lower -o most to {k} or less"),
    ),
    claims=CLAIMS,
    cases=(*CASES, Case(4, 2, k=8, options={"most": 1})),
)
def slimpipe_exchange(shape: Shape, most: int) -> Draft:
    """The device with the q-th smallest load shares with the one with the q-th largest."""
    lent = loans(shape, lambda loads: pair_up(loads, most))
    return Draft(lock_step_lanes(shape, UNITS_AHEAD), loans=lent)


@schedule(
    name="slimpipe-level",
    title="slices in lock-step, attention work levelled over all devices",
    paper=PAPER,
    chunks=None,
    default_chunks=1,
    sliced=True,
    needs=(FILLED,),
    claims=CLAIMS,
    cases=CASES,
)
def slimpipe_level(shape: Shape) -> Draft:
    """At every step all loads become as equal as whole slices can be."""
    return Draft(lock_step_lanes(shape, UNITS_AHEAD), loans=loans(shape, level))
