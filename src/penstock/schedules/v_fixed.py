"""V-Min and V-Half: a third or a half of the memory of 1F1B, on a model folded like a V.

The memory of a pipeline is how long activations live, divided by how often a microbatch comes. Fold
the model so that device r holds stage r and stage 2p - 1 - r, and move from device to device as
fast as collisions allow: every device then holds the same, and little. V-Min is the shortest way
there is; V-Half goes down at half the speed, has a smaller bubble, and keeps its pace when F, I and
W differ somewhat.

    v-min: p = 2, m = 3 (F is the descending stage of a device, f the ascending one)
    device 0  F0 F1 f0 i0 w0 I0 W0 f1 i1 w1 F2 I1 W1 f2 i2 w2 I2 W2
    device 1  F0 f0 i0 I0 F1 f1 w0 W0 i1 I1 F2 f2 w1 W1 i2 I2 w2 W2

    v-half: p = 2, m = 3
    device 0  F0 F1 F2 f0 i0 w0 f1 i1 I0 w1 W0 f2 i2 I1 w2 I2 W1 W2
    device 1  F0 f0 F1 f1 i0 w0 I0 F2 W0 f2 i1 I1 i2 I2 w1 w2 W1 W2

Needs: two stages per device.
Claims: peak (p + 4)//3 and (p + 2)//2 microbatches; at equal times and m >= 2p an idle time of
4p - 5 passes (4p - 7 where 3 divides p) for V-Min and of 3p - 4 (3p - 7 for even p) for V-Half, a
pass being a sixth of a device's work on a microbatch. Source: arXiv:2405.15362, section 3, and its
public code.
Where we differ: nowhere in order for m >= 2p. With so few microbatches that the forwards end before
the first one is back, the public code leaves the end as it is, and we fill it as well. The paper's
table turns V-Half one unit earlier or later than its public code, whose starts we take.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.building_blocks import lanes_of
from penstock.schedules.generators.reorder import reorder
from penstock.schedules.generators.v_blocks import INTERVAL
from penstock.schedules.generators.v_shaped import half_block, third_block

PAPER = "arXiv:2405.15362"
CASES = (Case(4, 8), Case(3, 7), Case(5, 10), Case(4, 3), Case(1, 2))


def _held(c: Case, microbatches: int) -> tuple[Fraction, ...]:
    return (min(microbatches, c.m) * c.held,) * c.p


def _idle(c: Case, passes: int) -> Fraction:
    """The step with so many passes of idle time."""
    return c.m * c.step + passes * c.step / INTERVAL


def _equal(c: Case) -> bool:
    return c.F == c.I == c.W and c.hop == 0 and c.m >= 2 * c.p and c.p >= 3


EQUAL_PASSES = "F = I = W, no latency, m >= 2p and p >= 3"


@schedule(
    name="v-min",
    title="a third of the memory of 1F1B on a V",
    paper=PAPER,
    chunks=2,
    claims=(
        Claim(
            "makespan",
            "(6m + 4p - 5)(F + I + W)/6, with 7 in place of 5 where 3 divides p",
            lambda c: _idle(c, 4 * c.p - (7 if c.p % 3 == 0 else 5)),
            f"{PAPER}, public code",
            when=_equal,
            condition=EQUAL_PASSES,
        ),
        Claim(
            "peak",
            "(p + 4)//3 max(act, stash)",
            lambda c: _held(c, (c.p + 4) // 3),
            f"{PAPER}, section 3",
            bound=True,
        ),
    ),
    cases=CASES,
)
def v_min(shape: Shape) -> Lanes:
    """Every pass right behind that of the neighbour."""
    return lanes_of(reorder(shape, third_block(shape.devices)))


@schedule(
    name="v-half",
    title="half of the memory of 1F1B on a V",
    paper=PAPER,
    chunks=2,
    claims=(
        Claim(
            "makespan",
            "(6m + 3p - 4)(F + I + W)/6, with 7 in place of 4 for even p",
            lambda c: _idle(c, 3 * c.p - (7 if c.p % 2 == 0 else 4)),
            f"{PAPER}, public code",
            when=_equal,
            condition=EQUAL_PASSES,
        ),
        Claim(
            "peak",
            "(p + 2)//2 max(act, stash)",
            lambda c: _held(c, (c.p + 2) // 2),
            f"{PAPER}, section 3",
            bound=True,
        ),
    ),
    cases=CASES,
)
def v_half(shape: Shape) -> Lanes:
    """The way down takes two units per device, the way up one."""
    return lanes_of(reorder(shape, half_block(shape.devices)))
