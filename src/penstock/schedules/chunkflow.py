"""ChunkFlow: memory of a few slices, however long the longest sequence.

Most sequences of a fine-tuning set are short and a few are very long; sizing memory for the longest
wastes it on all others. Pack short sequences into slices of one size, cut long ones into several,
and run 1F1B over slices. Of a long sequence only the last slices keep their activations; the others
keep their keys, values and input, and run forward again right before their backward.

    chunkflow: p = 2, m = 3
    device 0  F0 F1 B0 N2 B1 F2.1 B2.1 R2 B2
    device 1  F0 B0 F1 B1 N2 F2.1 B2.1 R2 B2

    chunkflow-paced: p = 2, m = 3
    device 0  F0 F1 B0 N2 B1 F2.1 B2.1 R2 B2
    device 1  F0 B0 F1 B1 N2 F2.1 B2.1 R2 B2

A device that had to complete a long sequence has run ahead of 1F1B. ChunkFlow goes on with one
forward for each backward and stays ahead; the paced order first runs backwards alone, until it is
back in step. That holds less memory and keeps short sequences from queueing behind a long one.

Needs: one group per microbatch; one stage per device.
Claims: peak at most p - 1 - r + warmup slices or, where that is more, one sequence (chunkflow) or
what is kept of it (paced); makespan (n + p - 1)(F + B) + dF for n slices, d of them run again, once
devices warm up for the longest sequence. Source: derived from arXiv:2503.02356.
Where we differ: a stage runs its slices again on its own, without sending them through the
pipeline; the longer warm-up is our option, the paced order is ours.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from math import ceil

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.schedules.generators.ragged import (
    RaggedLengths,
    merge_groups,
    ragged_shape,
    read_lengths,
    write_lengths,
)

PAPER = "arXiv:2503.02356"


def _lengths(c: Case) -> RaggedLengths:
    return read_lengths(c[GROUPS])


def _longest(c: Case) -> int:
    return ceil(max(_lengths(c)))


def _total(c: Case) -> int:
    return sum(map(ceil, _lengths(c)))


def _long_tail(c: Case) -> str:
    """Everything fits one slice, except the last sequence."""
    return ",".join(["1"] * (c.m - 1) + [str(max(2, c.m // 2))])


def _makespan(c: Case) -> Fraction:
    again = sum(max(0, ceil(length) - c[RETAIN]) for length in _lengths(c))
    return (_total(c) + c.p - 1) * c.step + again * c.F


def _in_step(c: Case) -> bool:
    """No backward waits for the rest of its sequence to go forward, and all slices are equal."""
    whole = all(length.denominator == 1 for length in _lengths(c))
    return whole and (c.p == 1 or c[WARMUP] >= _longest(c))


def _live(c: Case, at_least: int) -> tuple[Fraction, ...]:
    """What devices have in flight after their warm-up, or what one sequence needs."""
    live = [max(c.p - 1 - r + c[WARMUP], at_least) for r in range(c.p)]
    return tuple(min(slices, _total(c)) * c.act for slices in live)


GROUPS = Option(
    "groups",
    lambda text: write_lengths(read_lengths(text)),
    default=_long_tail,
    text="the length of each microbatch in slices, as 1,1/2,3, where 1 is one slice filled by "
    "one or several sequences; if left out, all are 1 but the last, which is m/2, at least 2",
    least=None,
)

RETAIN = Option(
    "retain",
    int,
    default=lambda c: 1,
    text="slices of a sequence that keep their activations; the others run forward twice",
)

WARMUP = Option(
    "warmup",
    int,
    default=lambda c: 1,
    text="slices of the sequence that devices warm up for: 1 is the warm-up of 1F1B; with those"
    " of the longest sequence no device waits until it is complete",
)

OPTIONS = (GROUPS, RETAIN, WARMUP)
NEEDS = (
    Need(
        lambda c: len(_lengths(c)) == c.m,
        "there is one group for each of the m microbatches",
        "give -m the number of groups in -o groups={groups}",
    ),
    Need(
        lambda c: max(c[RETAIN], c[WARMUP]) <= _longest(c),
        "retain and warmup are at most the slices of the longest sequence",
        "lower -o retain={retain} or -o warmup={warmup}",
    ),
)
SLICED_MAKESPAN = Claim(
    "makespan",
    "(n + p - 1)(F + B) + dF, where d of n slices run again",
    _makespan,
    f"derived from {PAPER}",
    when=_in_step,
    condition="whole slices, and p = 1 or warmup = slices of the longest sequence",
)
CASES = (
    Case(4, 3, options={"groups": "1,1,2", "retain": 2}),
    Case(4, 3, options={"groups": "1,1,2", "retain": 1}),
    Case(4, 3, options={"groups": "1,1,2", "retain": 2, "warmup": 2}),
    Case(3, 4, options={"groups": "5/2,1/4,1,4", "retain": 2}),
    Case(2, 4, options={"groups": "4,1,1,1", "retain": 1, "warmup": 4}),
    Case(1, 2, options={"groups": "5,1", "retain": 3}),
    Case(4, 8),
)


def _units_before(shape: Shape) -> Iterator[tuple[int, int]]:
    """For each backward: its number, and the forwards that complete its microbatch."""
    complete = [end for end, n in zip(accumulate(shape.slices), shape.slices) for _ in range(n)]
    return enumerate(complete)


@schedule(
    name="chunkflow",
    title="1F1B over sequences of unequal length, of which the last slices are kept",
    paper=PAPER,
    sequences="sequences of any lengths (`-o groups`)",
    shape=lambda c: ragged_shape(c.p, _lengths(c)),
    options=OPTIONS,
    needs=NEEDS,
    claims=(
        SLICED_MAKESPAN,
        Claim(
            "peak",
            "max(p - 1 - r + warmup, slices of the longest sequence)",
            lambda c: _live(c, _longest(c)),
            f"derived from {PAPER}",
            bound=True,
        ),
    ),
    cases=CASES,
)
def chunkflow(shape: Shape, groups: str, retain: int, warmup: int) -> Lanes:
    """A forward before every backward, and more of them until its microbatch is complete."""
    p = shape.devices
    lanes = []
    for r in range(p):
        done, forwards = p - 2 - r + warmup, []
        for _, complete in _units_before(shape):
            done = max(done + 1, complete)
            forwards.append(done)
        lanes.append(merge_groups(shape, retain, r, forwards))
    return lanes


@schedule(
    name="chunkflow-paced",
    title="ChunkFlow that returns to the pace of 1F1B after a long sequence",
    paper=PAPER,
    sequences="sequences of any lengths (`-o groups`)",
    shape=lambda c: ragged_shape(c.p, _lengths(c)),
    options=OPTIONS,
    needs=NEEDS,
    claims=(
        SLICED_MAKESPAN,
        Claim(
            "peak",
            "max(p - 1 - r + warmup, retain)",
            lambda c: _live(c, min(c[RETAIN], _longest(c))),
            f"derived from {PAPER}",
            bound=True,
        ),
    ),
    cases=CASES,
)
def chunkflow_paced(shape: Shape, groups: str, retain: int, warmup: int) -> Lanes:
    """As many forwards before a backward as 1F1B has, or as its microbatch needs."""
    p = shape.devices
    return [
        merge_groups(
            shape,
            retain,
            r,
            [max(p - 1 - r + warmup + j, complete) for j, complete in _units_before(shape)],
        )
        for r in range(p)
    ]
