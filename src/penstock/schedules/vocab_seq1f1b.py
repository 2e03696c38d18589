"""Seq1F1B with the vocabulary layers spread over all devices, slice by slice.

The output layer treats every token by itself, so its two passes can be cut with the sequence: S and
T of a slice wait for no other slice. Long sequences then keep the small bubble of Seq1F1B while the
logits, the largest tensor of all, exist for a shard of the vocabulary and a slice of the sequence.

    p = 2, m = 1, k = 2 (E and D embed, S and T are the two passes of the output layer)
    device 0  E0 E0.1 F0 F0.1 S0 T0 S0.1 B0.1 B0 D0.1 D0 T0.1
    device 1  E0 E0.1 F0 S0 F0.1 T0 S0.1 B0.1 B0 D0.1 D0 T0.1

Needs: one stage per device, algorithm 1 or 2.
Claims: makespan m(F + B + S + T) + (p - 1)(F + B)/k, peak (p - 1 - r + k)/k and one slice more for
every wait of the turn, 2 for algorithm 1 and 1 for algorithm 2. Source: arXiv:2411.05288 for the
passes and arXiv:2406.03488 for the slices; their union is ours.
Where we differ: neither paper combines them. The order is that of the vocabulary passes in 1F1B
over slices; the warm-up is k - 1 slices longer, because backwards start with the last slice.
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

SOURCE = "arXiv:2411.05288 over the slices of arXiv:2406.03488"


@schedule(
    name="vocab-seq1f1b",
    title="1F1B over slices, with the vocabulary spread over all devices",
    paper="arXiv:2411.05288",
    sliced=True,
    priced=True,
    shape=sharded_shape,
    options=(ALGORITHM,),
    needs=(KNOWN_ALGORITHM,),
    claims=(
        Claim(
            "makespan",
            "m(F + B + S + T) + (p - 1)(F + B)/k",
            balanced_makespan,
            SOURCE,
            when=passes_hide,
            condition="mk >= p, B >= F, no latency, E = D = 0",
        ),
        Claim(
            "peak",
            "min(p - r + k + 2 - algorithm, mk)/k",
            turning_peak,
            SOURCE,
        ),
    ),
    cases=(
        Case(4, 4, k=4),
        Case(4, 4, k=4, options={"algorithm": 1}),
        Case(4, 1, k=4),
        Case(6, 1, k=3),
        Case(3, 5),
        Case(1, 2, k=2),
    ),
)
def vocab_seq1f1b(shape: Shape, case: Case, algorithm: int) -> Lanes:
    """The bundles of vocab-1f1b, of slices instead of microbatches."""
    return Rhythm.of(shape, case).lanes()
