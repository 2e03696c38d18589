"""DualPipeV: a folded model whose forwards and backwards run braided.

Expert-parallel layers spend as long in all-to-all communication as in computation, and a single
forward or backward cannot hide its own. Fold the model like a V, so that both ways need forwards
and backwards at the same time, and run a forward of one way and a backward of the other as one
pair whose communication hides behind the partner's computation.

    p = 1, m = 3 (F is the descending stage of a device, f the ascending one, + braids a pair)
    device 0  F0 f0 F1 b0 f1+B0 F2+b1 f2+B1 b2 I2 W2

Needs: two stages per device, m >= 2p.
Claims: makespan m(F + B) + (p - 1)(F&B + B - 3W)/2 with F&B = F + B for a pair; peak 2p + 1 stage
activations, each half a microbatch. Source: DeepSeek's DualPipe and arXiv:2412.19437, whose PP
counts the 2p stages; the order is PyTorch's ScheduleDualPipeV.
Where we differ: nowhere in order; the makespan is exact only for F = I >= W.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import live_peak
from penstock.schedules._registry import Case, Claim, Need, schedule
from penstock.schedules.generators.lane import LaneDraft
from penstock.schedules.generators.placements import stages_of, v_placement


@schedule(
    name="dualpipev",
    title="braided forwards and backwards on a V-shaped placement",
    paper="arXiv:2412.19437",
    chunks=2,
    needs=(
        Need(
            lambda c: c.m >= 2 * c.p,
            "m >= 2p: there are at least as many microbatches as stages",
            "raise -m to twice the {p} devices",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "m(F + B) + (p - 1)(F + 2B - 3W)/2",
            lambda c: c.m * c.step + (c.p - 1) * (c.F + 2 * c.B - 3 * c.W) / 2,
            "DeepSeek DualPipe, table of bubbles",
            when=lambda c: c.F == c.I >= c.W,
            condition="F = I >= W",
        ),
        Claim(
            "peak",
            "(2p + 1)/2",
            lambda c: live_peak(c, live=lambda r: 2 * c.p + 1),
            "DeepSeek DualPipe, table of activations",
            when=lambda c: c.act >= c.stash,
            condition="act >= stash",
        ),
    ),
    cases=(Case(2, 4), Case(4, 8), Case(4, 11), Case(1, 3), Case(3, 7)),
)
def dualpipev(shape: Shape) -> Lanes:
    """Eight steps per device, as DeepSeek numbers them."""
    p, m = shape.devices, shape.microbatches
    lanes = [LaneDraft() for _ in range(p)]
    for r, (lane, (down, up)) in enumerate(zip(lanes, stages_of(v_placement(shape)))):
        _fill(lane, p, r, down, up)
        _braid(lane, p, r, m, down, up)
        _drain(lane, p, r, down, up)
    return [lane.items for lane in lanes]


def _fill(lane: LaneDraft, p: int, r: int, down: int, up: int) -> None:
    # 1. Down. 2. Down and up. 3. Up, with backwards that have already come back.
    lane.run("F" * (2 * (p - 1 - r)), down)
    for _ in range(r + 1):
        lane.run("F", down)
        lane.run("F", up)
    lane.run("IWF" * (p - 1 - r), up)


def _braid(lane: LaneDraft, p: int, r: int, m: int, down: int, up: int) -> None:
    # 4. Everything in pairs; at the fold the first pair is not braided, for a shorter bubble.
    for step in range(m - 2 * p + r + 1):
        if step == 0 and r == p - 1:
            lane.run("F", down)
            lane.run("B", up)
        else:
            lane.braid(forward=down, backward=up)
        lane.braid(forward=up, backward=down)
    # 5. No forwards are left on the way down.
    for _ in range(p - 1 - r):
        lane.run("B", up)
        lane.braid(forward=up, backward=down)


def _drain(lane: LaneDraft, p: int, r: int, down: int, up: int) -> None:
    # 6. Backwards only, the second half of them split. 7. 8. Weight gradients fill the rest.
    for kind, stage in zip("B" * (r + 1) + "I" * (r + 1), [up, down] * (r + 1)):
        lane.run(kind, stage)
    for _ in range(p - 1 - r):
        lane.run_oldest()
        lane.run("I", down)
    for _ in range(r + 1):
        lane.run_oldest()
