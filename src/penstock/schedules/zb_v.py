"""ZB-V: zero bubble in the memory of 1F1B, on a model folded like a V.

ZB-H2 needs twice the memory because the first device waits longest for its first backward. Fold
the model so that device r holds stage r and stage 2p - 1 - r: the last stage shares the first
device, a backward starts where its forward ended, and every device holds the same p microbatches.

    p = 2, m = 3 (F is the descending stage of a device, f the ascending one)
    device 0  F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 w2 I1 W1 I2 W2
    device 1  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 I1 i2 I2 W1 w2 W2

Needs: two stages per device.
Claims: span m(F + I + W) + (p - 1)(I - W), which is without bubble at equal times; peak p on every
device. Source: arXiv:2401.10241, section 6, which writes B for I.
Where we differ: the order is the handcrafted one, for equal times; the paper also searches orders
for measured times. Like PyTorch, the end runs all w before W where the paper alternates them.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import live_peak
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.lane import LaneDraft
from penstock.schedules.generators.placements import stages_of, v_placement
from penstock.schedules.generators.streams import PlainOp

PAPER = "arXiv:2401.10241, section 6"


def _no_longer(c: Case) -> bool:
    """Whether waiting for input gradients is all that is added."""
    return c.m >= 2 * c.p - 1 and max(c.F, c.W) <= c.I and c.F + c.I >= 2 * c.W


@schedule(
    name="zb-v",
    title="zero bubble on a V-shaped placement",
    paper="arXiv:2401.10241",
    chunks=2,
    claims=(
        Claim(
            "span",
            "m(F + I + W) + (p - 1)(I - W)",
            lambda c: c.m * c.step + (c.p - 1) * (c.I - c.W),
            f"{PAPER}; derived for unequal times",
            when=_no_longer,
            condition="m >= 2p - 1, I >= F, I >= W and F + I >= 2W",
        ),
        Claim(
            "peak",
            "p",
            lambda c: live_peak(c, live=lambda r: 2 * c.p),
            PAPER,
            when=lambda c: c.m >= 2 * c.p - 1 and c.act >= c.stash,
            condition="m >= 2p - 1 and act >= stash",
        ),
    ),
    cases=(Case(4, 8), Case(4, 7), Case(4, 2), Case(2, 3), Case(1, 2)),
)
def zb_v(shape: Shape) -> Lanes:
    """The order for at least 2p - 1 microbatches, without those the batch does not have."""
    ways = stages_of(v_placement(shape))
    lanes = (_lane(shape, r, *of_device) for r, of_device in enumerate(ways))
    return [[op for op in lane if op[2] < shape.microbatches] for lane in lanes]


def _lane(shape: Shape, r: int, down: int, up: int) -> list[PlainOp]:
    p = shape.devices
    batch = max(shape.microbatches, 2 * p - 1)
    lane = LaneDraft()
    # 1. Fill the way down, then both ways, until the first backward comes back.
    lane.run("F" * (2 * (p - r) - 1), down)
    for _ in range(r):
        lane.run("F", up)
        lane.run("F", down)
    lane.run("FIW" * (p - r), up)
    # 2. One forward and one backward each way; the way down runs out of forwards first.
    for mb in range(p, batch):
        if mb + p - 1 - r < batch:
            lane.run("F", down)
        lane.run("IW", down)
        lane.run("FIW", up)
    # 3. Drain: input gradients first, for which others wait, then what is due.
    for _ in range(r):
        lane.run("I", down)
        lane.run("I", up)
    lane.run("IW" * (p - r), down)
    lane.run_all(up)
    lane.run_all(down)
    return lane.items
