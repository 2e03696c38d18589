"""GIS and GIS-H: interleaved 1F1B with a shorter warm-up, and with half the memory.

Interleaving makes the bubble of 1F1B small but holds more activations than 1F1B itself. Split the
backward and run each weight gradient right behind its input gradient: gradients travel faster, the
first one comes back sooner, and the warm-up may be shorter. Smaller groups of microbatches per turn
go further: they trade memory for some waiting in the warm-up.

    gis: p = 2, v = 2, m = 2 (F is the first stage of a device, f its second)
    device 0  F0 F1 f0 f1 i0 w0 i1 w1 I0 W0 I1 W1
    device 1  F0 F1 f0 i0 w0 f1 i1 w1 I0 W0 I1 W1

    gis-h: p = 2, v = 2, m = 2
    device 0  F0 f0 F1 i0 w0 f1 I0 W0 i1 w1 I1 W1
    device 1  F0 f0 i0 w0 F1 I0 W0 f1 i1 w1 I1 W1

Needs: v >= 2; groups of at least half the devices and at most all of them.
Claims: peak min(g(v - 1) + p - r, vm)/v microbatches, makespan m(F + I + W) + (p - 1)(F + I)/v for
groups of g = p; smaller groups add (v - 1)(p - g)F/v, and more where I is long. Source:
arXiv:2503.01328, section 3, which writes B for I.
Where we differ: the paper adds (v - 1)(p - g)(F + I - W)/v for smaller groups, which is right for
I = W, and for p = 2g and I >= W. The closed form here holds for all times under which the paper
recommends the group.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import live_peak
from penstock.schedules._registry import SEVERAL_STAGES, Case, Claim, Need, Option, schedule
from penstock.schedules.generators.group_block import block_slots, least_group

PAPER = "arXiv:2503.01328, section 3"


def _makespan(c: Case, group: int) -> Fraction:
    """Devices idle until the first gradient is back, and at each turn that a group is too short."""
    first = (c.p - 1) * (c.F + c.I)
    turn = (c.p - group) * c.F + max(Fraction(0), c.p * c.I - group * c.B)
    return c.m * c.step + (first + (c.v - 1) * turn) / c.v


def _recommended(c: Case, group: int) -> bool:
    """Whether a group works as long as a microbatch travels, by the rule of the paper."""
    fits = group * c.step >= c.p * max(c.F, c.I) and c.F + c.I >= c.W
    return c.m % group == 0 and c.hop == 0 and (group == c.p or fits)


def _peak(c: Case, group: int) -> tuple[Fraction, ...]:
    return live_peak(c, live=lambda r: group * (c.v - 1) + c.p - r)


GROUP = Option(
    "group",
    int,
    default=lambda c: c.p,
    text="how many microbatches a stage runs before the device changes to its next stage; p "
    "if left out, fewer need less memory and wait longer",
)


@schedule(
    name="gis",
    title="several stages per device, with split backwards and a shorter warm-up",
    paper="arXiv:2503.01328",
    chunks=None,
    options=(GROUP,),
    needs=(
        SEVERAL_STAGES,
        Need(
            lambda c: least_group(c.p) <= c[GROUP] <= c.p,
            "p/2 <= group <= p",
            "give -o group from half of {p} to {p}",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "m(F + I + W) + ((p - 1)(F + I) + (v - 1)((p - group) F + max(0, pI - group B)))/v",
            lambda c: _makespan(c, c[GROUP]),
            f"{PAPER}; derived for unequal times",
            when=lambda c: _recommended(c, c[GROUP]),
            condition="m a multiple of group; group = p, or group(F + B) >= p max(F, I) and "
            "F + I >= W",
        ),
        Claim(
            "peak",
            "min(group (v - 1) + p - r, vm)/v",
            lambda c: _peak(c, c[GROUP]),
            PAPER,
            when=lambda c: c.m % c[GROUP] == 0 and c.act >= c.stash,
            condition="m a multiple of group and act >= stash",
        ),
    ),
    cases=(
        Case(4, 8, v=2),
        Case(4, 6, v=2, options={"group": 3}),
        Case(4, 7, v=3, options={"group": 2}),
        Case(8, 16, v=4),
        Case(5, 9, v=2, options={"group": 3}),
        Case(1, 2, v=2),
    ),
)
def gis(shape: Shape, group: int) -> Lanes:
    """Every device runs the slots of its block in order, as early as it can."""
    return [[op for _, op in slots] for slots in block_slots(shape, group)]


@schedule(
    name="gis-h",
    title="several stages per device, in half the memory",
    paper="arXiv:2503.01328",
    chunks=None,
    needs=(SEVERAL_STAGES,),
    claims=(
        Claim(
            "makespan",
            "m(F + I + W) + ((p - 1)(F + I) + (v - 1)((p - g) F + max(0, pI - gB)))/v, "
            "g = ceil(p/2)",
            lambda c: _makespan(c, least_group(c.p)),
            f"{PAPER}; derived for unequal times",
            when=lambda c: _recommended(c, least_group(c.p)),
            condition="m a multiple of g; g(F + B) >= p max(F, I) and F + I >= W",
        ),
        Claim(
            "peak",
            "min(g(v - 1) + p - r, vm)/v, g = ceil(p/2)",
            lambda c: _peak(c, least_group(c.p)),
            PAPER,
            when=lambda c: c.m % least_group(c.p) == 0 and c.act >= c.stash,
            condition="m a multiple of g and act >= stash",
        ),
    ),
    cases=(
        Case(4, 8, v=2),
        Case(8, 16, v=4),
        Case(5, 9, v=2),
        Case(2, 3, v=3),
        Case(3, 5, v=2),
        Case(1, 2, v=2),
    ),
)
def gis_h(shape: Shape) -> Lanes:
    """The smallest groups that do not keep the first device waiting for the last one."""
    return [[op for _, op in slots] for slots in block_slots(shape, least_group(shape.devices))]
