"""1F1B with the vocabulary layers spread over all devices.

The output layer makes the last device the slowest, and everybody waits for it with every
microbatch; moving other layers away evens out time or memory, but not both. Cut embedding and
output layer along the vocabulary into a shard per device. The turn from forward to backward then
waits for all devices, twice in algorithm 1 and once in algorithm 2; each time costs one microbatch
of memory, and the bubble stays that of 1F1B.

    p = 2, m = 2 (E and D embed, S and T are the two passes of the output layer)
    device 0  E0 E1 F0 F1 S0 T0 S1 B0 B1 D0 D1 T1
    device 1  E0 E1 F0 S0 F1 B0 T0 S1 B1 D0 D1 T1

Needs: one stage per device, algorithm 1 or 2.
Claims: makespan m(F + B + S + T) + (p - 1)(F + B), peak p - r + 2 microbatches for algorithm 1 and
p - r + 1 for algorithm 2. Source: arXiv:2411.05288 and its public code.
Where we differ: the published order of algorithm 1 ends late where B is no multiple of F; here the
last T stands in front of the backward that would hold it up.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.bundles import Rhythm
from penstock.schedules.generators.vocabulary import (
    ALGORITHM,
    KNOWN_ALGORITHM,
    balanced_makespan,
    passes_hide,
    sharded_shape,
    turning_peak,
)

PAPER = "arXiv:2411.05288"


@schedule(
    name="vocab-1f1b",
    title="1F1B with the vocabulary spread over all devices",
    paper=PAPER,
    priced=True,
    shape=sharded_shape,
    options=(ALGORITHM,),
    needs=(KNOWN_ALGORITHM,),
    claims=(
        Claim(
            "makespan",
            "m(F + B + S + T) + (p - 1)(F + B)",
            balanced_makespan,
            PAPER,
            when=passes_hide,
            condition="m >= p, B >= F, no latency, E = D = 0",
        ),
        Claim(
            "peak",
            "min(p - r + 3 - algorithm, m)",
            turning_peak,
            PAPER,
        ),
    ),
    cases=(
        Case(4, 8),
        Case(4, 8, options={"algorithm": 1}),
        Case(8, 12, options={"algorithm": 1}),
        Case(6, 3),
        Case(2, 2),
        Case(1, 3),
    ),
)
def vocab_1f1b(shape: Shape, case: Case, algorithm: int) -> Lanes:
    """In every cycle of F and B, a bundle: T of one microbatch and S of the next."""
    return Rhythm.of(shape, case).lanes()
