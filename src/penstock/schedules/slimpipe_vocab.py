"""SlimPipe with the vocabulary layers spread over all devices, one slice at every step.

The logits of a long sequence are its largest tensor, and the device with the output layer holds
them all. In lock-step all devices meet at every step anyway: cut both vocabulary layers into a
shard per device and let every step begin with the embedding of the slice that enters the pipeline
and end with the output layer of the slice that leaves it, on all devices at once.

    p = 2, m = 1, k = 2 (E and D embed, S and T are the two passes of the output layer)
    device 0  E0 F0 E0.1 F0.1 S0 S0.1 T0.1 T0 B0.1 D0.1 B0 D0
    device 1  E0 E0.1 F0 S0 F0.1 S0.1 T0.1 B0.1 T0 B0 D0.1 D0

Needs: k >= p for v > 1.
Claims: makespan (m + (p - 1)/(kv))(F + B) + m(S + T) where embedding takes no time, and at most
m(E + D) more where it does; peak 1 + 2(p - 1 - r)/(kv) microbatches, as without the passes.
Source: arXiv:2504.14519 and its released code.
Where we differ: the released code may scatter what enters the output layer along the sequence; for
the order it is one pass on all devices. Its three all-reduces are one wait for all shards here.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, Need, schedule
from penstock.schedules.generators.lockstep import lock_steps, slice_group
from penstock.schedules.generators.placements import looped_placement, stages_of
from penstock.schedules.generators.streams import PlainOp, Virtual, looped_tables

PAPER = "arXiv:2504.14519"


def _span(c: Case, passes: str) -> Fraction:
    """All devices do their shards of a slice at the same step, so these only stretch the steps."""
    return flush_makespan(c) + c.m * sum((c.price(kind) for kind in passes), Fraction(0))


@schedule(
    name="slimpipe-vocab",
    title="slices in lock-step, with the vocabulary spread over all devices",
    paper=PAPER,
    chunks=None,
    default_chunks=1,
    sliced=True,
    shape=lambda c: Shape(c.p, c.p * c.v, (c.k,) * c.m, embed="E", loss="T"),
    needs=(
        Need(
            lambda c: c.v == 1 or c.k >= c.p,
            "k >= p where a device has several stages",
            "raise -k to {p} or more, or give -v 1",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "(m + (p - 1)/(kv))(F + B) + m(S + T) for E = D = 0",
            lambda c: _span(c, "ST"),
            f"{PAPER}; the passes derived from its lock-step",
            when=lambda c: c.price("E") == c.price("D") == 0,
        ),
        Claim(
            "makespan",
            "(m + (p - 1)/(kv))(F + B) + m(E + S + T + D)",
            lambda c: _span(c, "ESTD"),
            f"derived from {PAPER}",
            bound=True,
        ),
        Claim(
            "peak",
            "min(kv + 2(p - 1 - r), mkv)/(kv)",
            lambda c: live_peak(c, live=lambda r: c.k * c.v + 2 * (c.p - 1 - r)),
            PAPER,
        ),
    ),
    cases=(Case(4, 2, k=4), Case(4, 2, v=2, k=8), Case(3, 2, v=2, k=4), Case(1, 2, k=2)),
)
def slimpipe_vocab(shape: Shape) -> Lanes:
    """Every step of the lock-step with what all devices do before and after it."""
    forwards, backwards = looped_tables(shape, slice_group(shape.devices, shape.slices[0]))
    tables = {"F": forwards, "B": backwards}
    of_device, steps = stages_of(looped_placement(shape)), list(lock_steps(shape))
    lanes: list[list[PlainOp]] = []
    for r in range(shape.devices):
        own = {kind: _steps(of_device, r, kind, table) for kind, table in tables.items()}
        lanes.append([op for kind, step in steps for op in own[kind][step]])
    return lanes


def _steps(
    of_device: list[tuple[int, ...]], r: int, kind: str, table: list[Virtual]
) -> list[list[PlainOp]]:
    """What a device does at each step: a pass of the slice that enters, its own op, a pass of the
    slice that leaves. Going forward slices enter at stage 0, going back at the last stage."""
    p, last = len(of_device), len(of_device[r]) - 1
    before, after, entry = ("E", "S", 0) if kind == "F" else ("T", "D", last)
    ahead = r if kind == "F" else p - 1 - r
    steps: list[list[PlainOp]] = [[] for _ in range(len(table) + p - 1)]
    for step, (c, mb, s) in enumerate(table):
        if c == entry:
            steps[step].append((before, r, mb, s))
    for step, (c, mb, s) in enumerate(table, ahead):
        steps[step].append((kind, of_device[r][c], mb, s))
    for step, (c, mb, s) in enumerate(table, p - 1):
        if c == last - entry:
            steps[step].append((after, r, mb, s))
    return steps
