"""1F1B-V: two thirds of the memory of 1F1B, with full backwards.

Folding the model like a V balances memory also where backwards are not split: forwards go down and
up by one unit per device, backwards by two, and after every third of them the way pauses for three
units, so that they do not meet the forwards.

    p = 2, m = 3 (F is the descending stage of a device, f the ascending one)
    device 0  F0 F1 F2 f0 b0 f1 b1 B0 f2 b2 B1 B2
    device 1  F0 f0 F1 f1 b0 B0 F2 f2 b1 B1 b2 B2

Needs: two stages per device.
Claims: peak (2p + 3)//3 microbatches; at F = I = W and m >= 2p an idle time of 5p - 5 units for
p = 1, 4, 7, ... and of 5p - 7 for p = 5, 8, 11, ..., a unit being a sixth of a device's work on a
microbatch. Source: arXiv:2405.15362, appendix, and its public code.
Where we differ: nowhere in order. The formulas are derived from what the construction gives for up
to 16 devices; where 3 divides p there is none.
"""

from itertools import count

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import live_peak
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.building_blocks import LENGTHS, Block, Pass, lanes_of
from penstock.schedules.generators.placements import v_placement
from penstock.schedules.generators.reorder import pull
from penstock.schedules.generators.v_blocks import INTERVAL

PAPER = "arXiv:2405.15362"
IN_A_ROW = 3
"""Backwards that follow each other before the way pauses."""
PAUSE = 3


@schedule(
    name="1f1b-v",
    title="1F1B on a V, two thirds of the memory",
    paper=PAPER,
    chunks=2,
    claims=(
        Claim(
            "makespan",
            "(6m + 5p - 5)(F + B)/6, with 7 in place of 5 for p = 5, 8, 11, ...",
            lambda c: (6 * c.m + 5 * c.p - (5 if c.p % 3 == 1 else 7)) * c.step / 6,
            f"derived from the construction of {PAPER}",
            when=lambda c: c.F == c.I == c.W and c.hop == 0 and c.m >= 2 * c.p and _regular(c.p),
            condition="F = I = W, no latency, m >= 2p, p not 2 and not divisible by 3",
        ),
        Claim(
            "peak",
            "min((2p + 3)//3, m)",
            lambda c: live_peak(c, live=lambda r: 2 * ((2 * c.p + 3) // 3)),
            f"derived from the construction of {PAPER}",
            when=lambda c: c.m >= 2 * c.p,
            condition="m >= 2p",
        ),
    ),
    cases=(Case(4, 8), Case(5, 10), Case(6, 12), Case(4, 3), Case(1, 2)),
)
def one_f_one_b_v(shape: Shape) -> Lanes:
    """The block repeated, with every op as early as the peak allows."""
    return lanes_of(pull(shape, _block(shape)))


def _regular(p: int) -> bool:
    return p % 3 != 0 and p != 2


def _block(shape: Shape) -> Block:
    """Forwards without a gap, backwards with a pause after every third."""
    p, home = shape.devices, v_placement(shape)
    starts: list[dict[Pass, int]] = [{} for _ in range(p)]
    for stage, device in enumerate(home):
        starts[device]["F", stage] = stage
    now = 2 * p + (PAUSE if p % 3 == 0 else 0)
    for stage, number in zip(reversed(range(shape.stages)), count(2 - p)):
        starts[home[stage]]["B", stage] = now
        now += LENGTHS["B"] + (PAUSE if number % IN_A_ROW == 0 else 0)
    return Block(INTERVAL, tuple(starts))
