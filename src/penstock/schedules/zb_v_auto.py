"""ZB-V for measured times: the V in the memory of 1F1B, without the gaps of a fixed order.

The handcrafted order of ZB-V has no bubble at equal times. Where the input gradient takes longer
than the weight gradient, or transfers take time, every device waits in each round. A constructor
that looks at the clocks moves weight gradients into those gaps, and is run again with what it has
learnt about who may idle.

    p = 2, m = 3 (F is the descending stage of a device, f the ascending one)
    device 0  F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 I1 w2 I2 W1 W2
    device 1  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 I1 i2 I2 w1 W1 w2 W2

Needs: two stages per device.
Claims: peak at most p microbatches on every device; at equal times and m >= 2p - 1 no bubble.
Source: arXiv:2401.10241, section 6, which writes B for I.
Where we differ: with a stash larger than an activation, a microbatch counts as its stash, so that
its input gradient always finds room.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.board import Budget
from penstock.schedules.generators.zb_v_search import search_zb_v

PAPER = "arXiv:2401.10241, section 6"


@schedule(
    name="zb-v-auto",
    title="zero bubble on a V-shaped placement, for measured times",
    paper="arXiv:2401.10241",
    chunks=2,
    priced=True,
    claims=(
        Claim(
            "span",
            "m(F + I + W)",
            lambda c: c.m * c.step,
            PAPER,
            when=lambda c: c.m >= 2 * c.p - 1 and c.F == c.I == c.W and c.hop == 0,
            condition="m >= 2p - 1, F = I = W, and no latency",
        ),
        Claim(
            "peak",
            "p max(act, stash)",
            lambda c: (c.p * c.held,) * c.p,
            PAPER,
            bound=True,
        ),
    ),
    cases=(Case(4, 8), Case(4, 7), Case(4, 2), Case(2, 3), Case(1, 2)),
)
def zb_v_auto(shape: Shape, case: Case) -> Lanes:
    """The memory of p microbatches, which are 2p activations of half a device."""
    return search_zb_v(case.p, case.m, Budget.of(case, case.p * case.held))
