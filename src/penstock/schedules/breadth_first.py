"""Breadth-first: a stage runs the whole batch before its device turns to the next stage.

Weights that are sharded over data-parallel replicas must be gathered whenever a device returns to
a stage, and depth-first interleaving returns to each of them all the time. Breadth-first keeps its
placement and its small bubble, but needs every stage in one forward window and one backward
window, so that gathers and reductions are few and hidden; the price is that the whole batch is
alive at the turn.

    p = 2, v = 2, m = 2 (F is the first stage of a device, f its second)
    device 0  F0 F1 f0 f1 b0 b1 B0 B1
    device 1  F0 F1 f0 f1 b0 b1 B0 B1

Needs: m >= p for every round (m/rounds >= p), unless v = 1.
Claims: makespan (m + rounds (p - 1)/v)(F + B), peak m/rounds. Source: arXiv:2211.05953; rounds are
those of Fast-LLM, the author's own system.
Where we differ: the microbatches of a backward window ascend, as in Fast-LLM, so that gradients
add up in the order of the microbatches; PyTorch's version descends.
"""

from fractions import Fraction

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._claims import live_peak
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.schedules.generators.placements import (
    looped_placement,
    stages_of,
    stages_per_device,
)
from penstock.schedules.generators.streams import Virtual, table_ops, virtual_table

ROUNDS = Option(
    "rounds",
    int,
    default=lambda c: 1,
    text="complete forward and backward passes that the batch is divided into",
)


@schedule(
    name="breadth-first",
    title="every stage runs the whole batch at once",
    paper="arXiv:2211.05953",
    chunks=None,
    options=(ROUNDS,),
    needs=(
        Need(
            lambda c: c.m % c[ROUNDS] == 0,
            "rounds divides m",
            "make -m a multiple of {rounds}, or change -o rounds",
        ),
        Need(
            lambda c: c.v == 1 or c.m >= c.p * c[ROUNDS],
            "a round has at least p microbatches",
            "raise -m to at least {p} per round, or lower -o rounds",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "(m + rounds (p - 1)/v)(F + B)",
            lambda c: (c.m + Fraction(c[ROUNDS] * (c.p - 1), c.v)) * c.step,
            "arXiv:2211.05953; derived for several rounds",
        ),
        Claim(
            "peak",
            "m/rounds",
            lambda c: live_peak(c, live=lambda r: c.v * c.m // c[ROUNDS]),
            "arXiv:2211.05953; derived for several rounds",
        ),
    ),
    cases=(
        Case(4, 8, v=2),
        Case(4, 16, v=2, options={"rounds": 2}),
        Case(4, 4, v=2),
        Case(4, 16, v=4),
        Case(3, 5, v=3),
        Case(1, 4, v=1, options={"rounds": 4}),
    ),
)
def breadth_first(shape: Shape, rounds: int) -> Lanes:
    """Round by round: the forward table of all stages, then the backward table."""
    tables = [table for df in range(rounds) for table in _round(shape, df, rounds)]
    return [
        [op for kind, table in tables for op in table_ops(kind, table, stages)]
        for stages in stages_of(looped_placement(shape))
    ]


def _round(shape: Shape, df: int, rounds: int) -> list[tuple[str, list[Virtual]]]:
    """A round takes every `rounds`-th microbatch: microbatch = bf * rounds + df."""
    units = [(i, 0) for i in range(df, shape.microbatches, rounds)]
    chunks = range(stages_per_device(shape))
    whole = [len(units)]
    return [
        ("F", virtual_table(units, chunks=chunks, groups=whole)),
        ("B", virtual_table(units, chunks=chunks[::-1], groups=whole)),
    ]
