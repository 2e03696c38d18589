"""V-Half with the vocabulary layers spread over all devices.

On a model folded like a V the first device has the embedding, the output layer and all their
weights, while memory is even among the others. Cut both along the vocabulary into a shard per
device, and everything is even. The turn from forward to backward waits for all devices, twice in
algorithm 1 and once in algorithm 2, so the building block leaves an interval free for each; in it
every device runs its S and T.

    p = 2, m = 2 (F is the descending stage of a device, f the ascending one)
    device 0  E0 E1 F0 f0 S0 F1 f1 T0 S1 i0 w0 T1 I0 i1 w1 W0 I1 W1 D0 D1
    device 1  E0 E1 F0 f0 S0 F1 f1 T0 S1 T1 i0 w0 I0 W0 i1 w1 I1 W1 D0 D1

Needs: two stages per device, algorithm 1 or 2.
Claims: peak (p + 2)//2 microbatches of V-Half and one more for every wait of the turn, on every
device. The makespan is at most that of the block before it is squeezed. Source: arXiv:2411.05288
and its public code, with the block of arXiv:2405.15362.
Where we differ: nowhere in order; like the public code we squeeze the repeated block and fill no
holes, so that the bubble is larger than that of V-Half.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.building_blocks import Pass, lanes_of
from penstock.schedules.generators.v_blocks import INTERVAL
from penstock.schedules.generators.v_shaped import half_block
from penstock.schedules.generators.vocabulary import (
    ALGORITHM,
    KNOWN_ALGORITHM,
    barriers,
    sharded_shape,
    vocabulary_work,
)

PAPER = "arXiv:2411.05288"


def _span(c: Case) -> Fraction:
    """All devices run S and T of a microbatch at the same time: these only stretch the block."""
    rest = (3 if c.p % 2 == 0 else 0) + INTERVAL * barriers(c[ALGORITHM])
    return c.m * c.step + vocabulary_work(c) + (6 * c.p + rest - 3) * c.step / INTERVAL


def _equal(c: Case) -> bool:
    return c.F == c.I == c.W and c.price("E") == c.price("D") == c.hop == 0


@schedule(
    name="vocab-v-half",
    title="V-Half with the vocabulary spread over all devices",
    paper=PAPER,
    chunks=2,
    shape=sharded_shape,
    options=(ALGORITHM,),
    needs=(KNOWN_ALGORITHM,),
    claims=(
        Claim(
            "makespan",
            "m(F + B + S + T) + (6p + 6 (3 - algorithm) - 3)(F + B)/6, with 0 in place of 3 for "
            "even p",
            _span,
            f"derived from the block of {PAPER}",
            when=_equal,
            condition="F = I = W, no latency, E = D = 0",
            bound=True,
        ),
        Claim(
            "peak",
            "(p + 2)//2 + 3 - algorithm",
            lambda c: (((c.p + 2) // 2 + barriers(c[ALGORITHM])) * c.act,) * c.p,
            PAPER,
            when=lambda c: c.m >= c.p + 1 + barriers(c[ALGORITHM]) and c.act == c.stash,
            condition="m >= p + 4 - algorithm and act = stash",
        ),
    ),
    cases=(
        Case(4, 8),
        Case(4, 8, options={"algorithm": 1}),
        Case(5, 10),
        Case(3, 2),
        Case(1, 3),
    ),
)
def vocab_v_half(shape: Shape, algorithm: int) -> Lanes:
    """The block of V-Half with free intervals, repeated; then the passes of the vocabulary."""
    block = half_block(shape.devices, barriers(algorithm)).with_weights()
    slots = block.repeat(shape.microbatches)
    return lanes_of([{**_passes(shape, r), **row} for r, row in enumerate(slots)])


def _passes(shape: Shape, device: int) -> dict[Pass, list[int]]:
    """When a device runs its shards.

    T and S stand a pass behind the forwards of a microbatch, E and D with those of a microbatch
    that is half the devices away; what has no such time stands at the very ends.
    """
    p, m = shape.devices, shape.microbatches
    lead, lag = p // 2 + 1, p // 2 + 3
    turns = [3 * p + INTERVAL * mb for mb in range(m)]
    end = turns[-1] + INTERVAL * (2 * p + 4)
    return {
        ("T", device): [*turns[1:], turns[-1] + 4],
        ("S", device): turns,
        ("E", device): [*[-1] * min(lead, m), *turns[: max(0, m - lead)]],
        ("D", device): [*turns[lag:], *[end] * min(lag, m)],
    }
