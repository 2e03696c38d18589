"""Interlaced: the vocabulary layers as tensor parallelism between the passes of 1F1B.

The output layer makes the last device the slowest. The plainest way to share it is to let all
devices stop together for every microbatch and compute the output layer with tensor parallelism,
forward and backward at once, waiting for each other in between. All devices must then be in step,
for which microbatches have to live longer: half as much memory again as 1F1B.

    p = 2, m = 3 (E and D embed, S and T are the two passes of the output layer)
    device 0  E0 E1 F0 E2 F1 F2 S0 T0 S1 T1 B0 S2 T2 B1 D0 B2 D1 D2
    device 1  E0 E1 E2 F0 F1 S0 T0 B0 S1 T1 B1 F2 S2 T2 B2 D0 D1 D2

Needs: one stage per device.
Claims: makespan m(F + B + S + T) + (p - 1)(F + B) where B >= F, peak 3p//2 - r microbatches.
Source: nnScaler's interlaced pipeline, as arXiv:2411.05288 describes and compares it.
Where we differ: the embedding is sharded in the same way, a microbatch ahead of its use; the source
tells the order of the output layer only. Communication that computation waits for is part of S and
T, whose time is yours to set.
"""

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import live_peak
from penstock.schedules._registry import Case, Claim, schedule
from penstock.schedules.generators.streams import PlainOp
from penstock.schedules.generators.vocabulary import balanced_makespan

PAPER = "arXiv:2411.05288"


@schedule(
    name="interlaced",
    title="1F1B that stops for tensor-parallel vocabulary layers",
    paper=PAPER,
    shape=lambda c: Shape(c.p, c.p, (1,) * c.m, embed="E", loss="T"),
    claims=(
        Claim(
            "makespan",
            "m(F + B + S + T) + (p - 1)(F + B)",
            balanced_makespan,
            f"derived from {PAPER}",
            when=lambda c: c.B >= c.F,
            condition="B >= F",
        ),
        Claim(
            "peak",
            "min(3p//2 - r, m)",
            lambda c: live_peak(c, live=lambda r: 3 * c.p // 2 - r),
            PAPER,
        ),
    ),
    cases=(Case(4, 8), Case(5, 9), Case(4, 2), Case(8, 16), Case(2, 3), Case(1, 3)),
)
def interlaced(shape: Shape) -> Lanes:
    """Every device runs S and T of a microbatch between the same two passes."""
    return [_lane(shape, r) for r in range(shape.devices)]


def _lane(shape: Shape, r: int) -> list[PlainOp]:
    p, m = shape.devices, shape.microbatches
    depth = 3 * p // 2
    forwards, stops = min(depth - r, m), min(p - r, m)
    wait = min(max(0, depth - p - (p - 1 - r) // 2), m - stops)
    rounds = m - forwards
    last = max(0, m - stops - wait - rounds)
    steady = "FBS" if (p - r) % 2 == 0 else "BFS"
    letters = "F" * forwards + "S" * stops + "BS" * wait + steady * rounds + "BS" * last
    return _counted(letters + "B" * (m - letters.count("B")), shape, r)


def _counted(letters: str, shape: Shape, r: int) -> list[PlainOp]:
    """The letters with their microbatches, an S with its T, and the input passes."""
    m = shape.microbatches
    lane: list[PlainOp] = [("E", r, mb, 0) for mb in range(min(r + 1, m))]
    done = dict.fromkeys("FSB", 0)
    for letter in letters:
        mb = done[letter]
        done[letter] += 1
        # All devices reach a forward of the first device at the same time, r microbatches apart.
        if letter == "F" and mb + r + 1 < m:
            lane.append(("E", r, mb + r + 1, 0))
        lane.append((letter, r, mb, 0))
        if letter == "S":
            lane.append(("T", r, mb, 0))
        if letter == "B" and mb > r:
            lane.append(("D", r, mb - r - 1, 0))
    return lane + [("D", r, mb, 0) for mb in range(max(0, m - r - 1), m)]
