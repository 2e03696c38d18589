"""PO-H and PO-F: activations of half or of all stages wait on the host.

More devices do not lower the memory of each: there are fewer layers to a stage, but more
microbatches in flight. Their activations lie idle between forward and backward, long enough to go
to the host and come back unnoticed. Repeat microbatches one by one instead of in groups, so that
what a stage adds to the peak is in proportion to how long its activations live; then move those out
that live longest, the ones of a device's first stages.

    po-h: p = 3, v = 2, m = 2 (F is the first stage of a device, f its second)
    device 0  F0 F1 f0 f1 i0 w0 i1 w1 I0 W0 I1 W1
    device 1  F0 F1 f0 i0 w0 f1 i1 w1 I0 W0 I1 W1
    device 2  F0 F1 f0 i0 w0 f1 i1 w1 I0 W0 I1 W1

    po-f: p = 3, v = 2, m = 2
    device 0  F0 F1 f0 f1 i0 w0 i1 w1 I0 W0 I1 W1
    device 1  F0 F1 f0 i0 w0 f1 i1 w1 I0 W0 I1 W1
    device 2  F0 F1 f0 i0 w0 f1 i1 w1 I0 W0 I1 W1

Needs: v >= 2; for PO-F, time enough for all copies.
Claims: peak at most that of 1F1B, and far below it for large v; makespan at most that of 1F1B.
Source: arXiv:2503.01328, sections 3 and 4, which writes B for I.
Where we differ: the slots only order the ops: nothing waits for a slot where it could start. The
paper halts both devices of a pair at every copy; here each copy waits for the last one of the other
device in its direction.
"""

from fractions import Fraction

from penstock.core.numbers import read_number
from penstock.core.schedule import Draft, Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules._registry import SEVERAL_STAGES, Case, Claim, Need, Option, schedule
from penstock.schedules.generators.group_block import block_slots
from penstock.search.offload.offload_plan import Infeasible, uniform_windows
from penstock.search.offload.room import hold_for_room, proven_levels
from penstock.transform.offload import add_copies, take_turns

PAPER = "arXiv:2503.01328"


def _ratio(text: str) -> Fraction:
    ratio = read_number(text)
    if ratio <= 0:
        raise ValueError(text)
    return ratio


RATIO = Option(
    "ratio",
    _ratio,
    default=lambda c: Fraction(1),
    text="time of both copies of an activation, out and in, divided by the time of its ops; 1 if "
    "left out, more than 0",
    least=None,
)


def copy_ratio(hidden: int, length: int, *, flops: int, host: int) -> Fraction:
    """The option `ratio` of a transformer layer, from its width, the length of its sequences, the
    operations per second of a device and the bytes per second of its way to the host.

    A layer keeps 20 bytes per token and unit of its width where norms and activation functions are
    recomputed; they go out and come in. Its F, I and W are 72 h + 12 s operations for each.
    """
    return Fraction(2 * 20, 72 * hidden + 12 * length) * Fraction(flops, host)


def _draft(shape: Shape, of_device: int, ratio: Fraction) -> Draft:
    """The order of the slots, with the first stages of each device offloaded."""
    try:
        windows = uniform_windows(shape, of_device, ratio)
    except Infeasible:
        raise ShapeError(
            f"{of_device} stages of each device cannot be copied in time at a ratio of {ratio}",
            hint="lower the ratio with faster copies, or offload fewer stages",
        ) from None
    lanes = [[op for _, op in lane] for lane in block_slots(shape, group=1)]
    planned = add_copies(Schedule.of("", shape, lanes), windows)
    sizes = UnitCost()
    found = hold_for_room(planned, sizes, proven_levels(planned, sizes))
    pairs = [range(first, first + 2) for first in range(0, shape.devices, 2)]
    for direction in "OL":
        found = take_turns(found, windows, pairs, kinds=direction)
    devices = range(shape.devices)
    return Draft(
        compute=lanes,
        copy=[found.lane(device, "copy") for device in devices],
        after=found.after,
    )


def _all_fit(c: Case) -> bool:
    try:
        uniform_windows(Shape.even(c.p, c.m, c.v), c.v, c[RATIO])
    except Infeasible:
        return False
    return True


CLAIMS = (
    Claim(
        "makespan",
        "(m + p - 1)(F + B), copies hidden",
        lambda c: (c.m + c.p - 1) * c.step,
        f"{PAPER}, table 1",
        bound=True,
        when=lambda c: c.B >= c.F,
        condition="B >= F",
    ),
    Claim(
        "peak",
        "min(pv - r, mv)/v",
        lambda c: tuple(Fraction(min(c.p * c.v - r, c.m * c.v), c.v) * c.act for r in range(c.p)),
        f"{PAPER}, table 1",
        when=lambda c: c.act >= c.stash,
        condition="act >= stash",
        bound=True,
    ),
)


@schedule(
    name="po-h",
    title="one microbatch per turn, half of the stages offloaded",
    paper=PAPER,
    chunks=None,
    options=(RATIO,),
    needs=(SEVERAL_STAGES,),
    claims=CLAIMS,
    cases=(
        Case(4, 8, v=2),
        Case(8, 16, v=4),
        Case(5, 7, v=3, options={"ratio": Fraction(1, 2)}),
        Case(4, 5, v=2, options={"ratio": 2}),
        Case(1, 2, v=2),
    ),
)
def po_h(shape: Shape, ratio: Fraction) -> Draft:
    """The first half of each device's stages, whose activations live longest."""
    return _draft(shape, shape.stages // shape.devices // 2, ratio)


@schedule(
    name="po-f",
    title="one microbatch per turn, all stages offloaded",
    paper=PAPER,
    chunks=None,
    options=(RATIO,),
    needs=(
        SEVERAL_STAGES,
        Need(
            _all_fit,
            "every activation is offloaded before it must be loaded again",
            "lower -o ratio={ratio} with faster copies, or take a schedule that offloads less",
        ),
    ),
    claims=CLAIMS,
    cases=(
        Case(4, 8, v=2),
        Case(8, 16, v=4, options={"ratio": Fraction(7, 10)}),
        Case(5, 7, v=3, options={"ratio": Fraction(1, 2)}),
        Case(1, 2, v=2),
    ),
)
def po_f(shape: Shape, ratio: Fraction) -> Draft:
    """Every stage; what comes back too soon stays."""
    return _draft(shape, shape.stages // shape.devices, ratio)
