"""OptPipe: the order and the offloads together, searched for under a memory limit.

A fixed pattern of offloads moves a preset share of activations whether memory is short or not, and
so wastes memory here and time there. OptPipe writes the whole step as one problem: which op comes
when, and which activations go to the host in between, so that the step is short and no device
exceeds its memory. It begins with a good order, and a solver improves it.

    p = 2, m = 3, limit = 2
    device 0  F0 F1 I0 W0 F2 I1 W1 I2 W2
    device 1  F0 I0 F1 I1 W0 F2 I2 W1 W2

Needs: one stage per device; a limit that holds one microbatch; OR-Tools (the extra `solve`).
Claims: peak at most the limit; makespan at most that of ZB-H1 where the limit holds p microbatches,
and never more than one op at a time would take. Source: arXiv:2510.05186; the model is that of
docs/schedules/optpipe.md.
Where we differ: the paper's equations are not public; the model and the heuristic are ours. The
solver is OR-Tools' instead of Gurobi, and counts its own work, so that a result repeats.
"""

from fractions import Fraction

from penstock.core.schedule import Draft
from penstock.core.shape import Shape
from penstock.schedules._claims import weights_fit
from penstock.schedules._limit import LIMIT
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.search._prices import cost_of
from penstock.search.exact.exact import MAKESPAN, solve
from penstock.search.exact.model import constraint_solver
from penstock.search.offload.ada_offload import ada_offload

PAPER = "arXiv:2510.05186"
HUNDREDTH = 0.01
MOST_EFFORT = 1_000_000


def _effort(text: str) -> int:
    effort = int(text)
    if not 0 < effort <= MOST_EFFORT:
        raise ValueError(text)
    return effort


EFFORT = Option(
    "effort",
    _effort,
    default=lambda c: 2,
    text="how long the solver may improve the order, in hundredths of a second of its own "
    "clock, which counts work and is about 5 times slower than real time; 2 if left out, "
    "at most 1000000",
    least=None,
)

SHARING = Option(
    "sharing",
    int,
    default=lambda c: 1,
    text="how many neighbouring devices share one channel to the host; 1 if left out",
)


@schedule(
    name="optpipe",
    title="order and offloads searched together, within a memory limit",
    paper=PAPER,
    priced=True,
    options=(LIMIT, EFFORT, SHARING),
    needs=(
        Need(
            lambda c: c[LIMIT] >= c.held,
            "limit is at least act and at least stash",
            "raise -o limit={limit} to what one microbatch holds, or make microbatches smaller",
        ),
        Need(
            lambda c: c[SHARING] <= c.p,
            "no more devices share a channel than there are",
            "lower -o sharing={sharing} to {p} or less",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "(m + p - 1)(F + I) + max(1, m - p + 1) W",
            lambda c: (c.m + c.p - 1) * (c.F + c.I) + max(1, c.m - c.p + 1) * c.W,
            "derived: it begins with an order no worse than ZB-H1's",
            when=lambda c: c[LIMIT] >= c.p * c.held and weights_fit(c) and c.hop == 0,
            condition="limit >= p max(act, stash), F >= W, I >= W and no latency",
            bound=True,
        ),
        Claim(
            "makespan",
            "mp(F + I + W) + 2m(p - 1) hop",
            lambda c: c.m * c.p * c.step + 2 * c.m * (c.p - 1) * c.hop,
            "derived: something always runs",
            bound=True,
        ),
        Claim("peak", "limit", lambda c: (c[LIMIT],) * c.p, PAPER, bound=True),
    ),
    cases=(
        Case(3, 4, options={"limit": 2, "effort": 100}),
        Case(4, 8, options={"limit": Fraction(5, 2)}),
        Case(4, 8),
        Case(4, 3, options={"limit": 3, "sharing": 2}),
        Case(2, 3, options={"limit": 8}),
        Case(1, 2),
    ),
)
def optpipe(shape: Shape, case: Case, limit: Fraction, effort: int, sharing: int) -> Draft:
    """The heuristic's order, improved by the solver; any forward may be offloaded."""
    constraint_solver()  # refused at once where it is missing, however small the step
    channels = [range(first, min(first + sharing, case.p)) for first in range(0, case.p, sharing)]
    begun = ada_offload(case, limit, MAKESPAN.worth, channels if sharing > 1 else ())
    offloads = {op: Fraction(1) for op in begun.table.ops() if op.kind == "F"}
    found = solve(
        begun,
        cost_of(case),
        goal=MAKESPAN,
        limit=limit,
        offloads=offloads,
        channels=channels,
        effort=effort * HUNDREDTH,
    ).schedule
    devices = range(case.p)
    return Draft(
        compute=[found.lane(device) for device in devices],
        copy=[found.lane(device, "copy") for device in devices],
        after=found.after,
        shares=found.shares,
    )
