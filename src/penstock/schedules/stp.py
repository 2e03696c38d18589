"""STP: every forward braided with a backward, so that tensor parallelism has something to hide in.

Tensor parallelism adds an all-reduce to every forward and every input gradient. A full backward
hides its own behind the weight gradient; schedules that split it expose it again. Fold the model
like a V and run, wherever possible, a forward of one microbatch and a backward of another as one
pair: the all-reduce of one strand runs while the other computes. The first half of a device keeps
its activations longest; the second schedule lets them wait in the memory of the host.

    stp: p = 2, m = 5 (F is the descending stage of a device, f the ascending one, + braids a pair)
    device 0  F0 F1 F2 f0 F3 f1+i0 F4+w0 f2+b1 B0 f3+i2 B1 f4+i3 B2 b4 B3 w2 w3 B4
    device 1  F0 f0 F1 f1 F2+F3 f2+b0 F4+B0 f3+i1 B1 f4+i2 B2 b3 B3 b4 B4 w1 w2

    stp-offload: p = 1, m = 3 (as it computes)
    device 0  F0 f0 F1 f1+b0 F2+B0 f2+b1 B1 b2 B2

Needs: two stages per device, m >= 3p - 1; for the offload 0 < share <= 1.
Claims: makespan m(F + B) + (p - 1)(2F + 2I - 3W)/2 for W <= F <= I, which at equal times is the
published bubble (p - 1)(F + I - W)/2; peak 3p + 1 activations of a stage, and r - 1 stashes. With
all of the first halves on the host r + 3 activations and 2p - 3 stashes remain.
Source: arXiv:2510.27257, which counts per stage and writes B for I, and its released scheduler.
Where we differ: the released code accepts m >= 2p, where its counts go wrong. A pair takes memory
at its start and gives it back at its end, one activation more than the published 3p. One lane
copies both ways; a device computes at most one block while an offload of the block before runs.
"""

from fractions import Fraction
from typing import Any

from penstock.core.numbers import read_number
from penstock.core.ops import Op
from penstock.core.schedule import After, Draft, Lanes
from penstock.core.shape import Shape
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.schedules.generators.lane import LaneDraft
from penstock.schedules.generators.placements import stages_of, v_placement

PAPER = "arXiv:2510.27257"

ENOUGH = Need(
    lambda c: c.m >= 3 * c.p - 1,
    "m >= 3p - 1: the first device runs that many forwards ahead",
    "raise -m to three times the {p} devices, less 1",
)

BRAID_MAKESPAN = Claim(
    "makespan",
    "m(F + B) + (p - 1)(2F + 2I - 3W)/2",
    lambda c: c.m * c.step + (c.p - 1) * (2 * c.F + 2 * c.I - 3 * c.W) / 2,
    f"{PAPER}, table of bubbles, for F = I = W; derived for unequal times",
    when=lambda c: c.W <= c.F <= c.I,
    condition="W <= F <= I",
)


def _kept(c: Case, r: int) -> Fraction:
    """Peak of a device that keeps everything."""
    return ((3 * c.p + 1) * c.act + max(0, r - 1) * c.stash) / 2


def _offloaded(c: Case, r: int) -> Fraction:
    """Peak of a device whose first half waits on the host, late in the step, when many weight
    gradients are due."""
    return ((r + 3) * c.act + max(0, 2 * c.p - 3) * c.stash) / 2


@schedule(
    name="stp",
    title="forwards braided with backwards, to hide tensor parallelism",
    paper=PAPER,
    chunks=2,
    needs=(ENOUGH,),
    claims=(
        BRAID_MAKESPAN,
        Claim(
            "peak",
            "((3p + 1) act + max(0, r - 1) stash)/2",
            lambda c: tuple(_kept(c, r) for r in range(c.p)),
            f"{PAPER}, table of activations, with its 3p + 1 and its stashes counted",
            when=lambda c: c.act >= c.stash,
            condition="act >= stash",
        ),
    ),
    cases=(Case(4, 12), Case(2, 6), Case(1, 2), Case(3, 8), Case(4, 16)),
)
def stp(shape: Shape) -> Lanes:
    """Nine steps per device, as the released scheduler has them."""
    return _lanes(shape)


SHARE = Option(
    "share",
    read_number,
    default=lambda c: Fraction(1),
    text="the part, above 0 and at most 1, of a first-half activation that is offloaded",
    least=None,
)


@schedule(
    name="stp-offload",
    title="braided pairs, first halves on the host",
    paper=PAPER,
    chunks=2,
    options=(SHARE,),
    needs=(
        ENOUGH,
        Need(lambda c: 0 < c[SHARE] <= 1, "0 < share <= 1", "give -o share=1 or less"),
    ),
    claims=(
        BRAID_MAKESPAN,
        Claim(
            "peak",
            "((r + 3) act + max(0, 2p - 3) stash)/2",
            lambda c: tuple(_offloaded(c, r) for r in range(c.p)),
            f"derived from {PAPER}",
            when=lambda c: c.act >= c.stash and c[SHARE] == 1,
            condition="act >= stash and share = 1",
        ),
        Claim(
            "peak",
            "share of that, and 1 - share of what is held without offload",
            lambda c: tuple(
                c[SHARE] * _offloaded(c, r) + (1 - c[SHARE]) * _kept(c, r) for r in range(c.p)
            ),
            f"derived from {PAPER}",
            when=lambda c: c.act >= c.stash,
            condition="act >= stash",
            bound=True,
        ),
    ),
    cases=(
        Case(2, 9),
        Case(4, 12),
        Case(4, 12, options={"share": Fraction(1, 2)}),
        Case(1, 2),
        Case(3, 8),
    ),
)
def stp_offload(shape: Shape, share: Fraction) -> Draft:
    """The same lanes, with the activations of the descending stages copied out and in."""
    compute = _lanes(shape)
    copies = [_copies(lane, stage) for stage, lane in enumerate(compute)]
    partial = share != 1
    return Draft(
        compute,
        copy=[ops for ops, _ in copies],
        after=tuple(order for _, orders in copies for order in orders),
        shares=tuple((op, share) for ops, _ in copies for op in ops if partial),
    )


def _lanes(shape: Shape) -> list[list[Any]]:
    p, m = shape.devices, shape.microbatches
    lanes = [LaneDraft() for _ in range(p)]
    for r, (lane, (down, up)) in enumerate(zip(lanes, stages_of(v_placement(shape)))):
        _fill(lane, p, r, down, up)
        _braid(lane, p, r, m, down, up)
        _drain(lane, p, r, down, up)
    return [lane.items for lane in lanes]


def _fill(lane: LaneDraft, p: int, r: int, down: int, up: int) -> None:
    # 1. Down. 2. Down and up. 3. Down once more, in pairs.
    lane.run("F" * (2 * (p - 1 - r)), down)
    for _ in range(r + 1):
        lane.run("F", down)
        lane.run("F", up)
    lane.run("F" * ((r + 1) % 2), down)
    for _ in range((r + 1) // 2):
        lane.pair(("F", down), ("F", down))


def _braid(lane: LaneDraft, p: int, r: int, m: int, down: int, up: int) -> None:
    # 4. The first backwards; nothing has come back on the way down, so a W takes its place.
    for _ in range(p - 1 - r):
        lane.pair(("F", up), ("I", up))
        lane.pair(("F", down), ("W", up))
    # 5. Everything in pairs; the last r keep their W for the end.
    blocks = 2 * (m - 3 * p + 1) + 1 + 2 * r
    for number in range(blocks):
        stage = down if number % 2 else up
        lane.pair(("F", stage), ("B" if number < blocks - r else "I", stage))
    # 6. No forwards are left on the way down.
    for _ in range(2 * p - 2 - r):
        lane.run("B", down)
        lane.pair(("F", up), ("I", up))


def _drain(lane: LaneDraft, p: int, r: int, down: int, up: int) -> None:
    # 7. Backwards both ways. 8. Down, with what is due between. 9. The rest of what is due.
    for _ in range(r + 1):
        lane.run("B", down)
        lane.run("B", up)
    lane.run("B", down)
    for _ in range(p - 1 - r):
        lane.run_oldest()
        lane.run_oldest()
        lane.run("B", down)
    for _ in range(2 * r):
        lane.run_oldest()


def _copies(lane: list[Any], stage: int) -> tuple[list[Op], list[After]]:
    """What the copy lane does for a stage, and what waits for what.

    An activation leaves when its forward has ended, and comes back when the backward before its own
    has. The block after the next waits for it to have left, so that memory is bounded by order.
    """
    blocks = [[Op(*op) for op in (item if type(item[0]) is tuple else (item,))] for item in lane]
    of_stage = [[op for op in block if op.stage == stage] for block in blocks]
    backwards = [at for at, ops in enumerate(of_stage) if any(op.kind in "BI" for op in ops)]
    issued: list[list[Op]] = [[] for _ in blocks]
    after: list[After] = []
    for mb, start in enumerate([max(backwards[0] - 2, 0), *backwards[:-1]]):
        issued[start].append(Op("L", stage, mb))
        after.append(After(Op("L", stage, mb), blocks[start][-1]))
    for at, ops in enumerate(of_stage):
        leaving = [Op("O", stage, op.mb) for op in ops if op.kind == "F"]
        issued[at] += leaving
        after += [After(block[0], op) for block in blocks[at + 2 : at + 3] for op in leaving]
    return [op for ops in issued for op in ops], after
