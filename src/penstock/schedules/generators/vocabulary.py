"""What schedules share whose vocabulary layers are sharded over all devices.

The embedding and the output layer are unlike the other layers and make the first and the last
device the slowest. Cut both along the vocabulary into a shard per device, and each becomes a pass
that all devices run for every unit: E and D around the first stage, S and T around the turn from
forward to backward. Source: arXiv:2411.05288.
"""

from fractions import Fraction

from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import Case, Need, Option

ALGORITHM = Option(
    "algorithm",
    int,
    default=lambda c: 2,
    text="1 or 2: the backward waits for the T of all shards, or already for their S, which then "
    "does more of the work",
)
KNOWN_ALGORITHM = Need(
    lambda c: c[ALGORITHM] <= 2,
    "algorithm is 1 or 2",
    "give -o algorithm=1 or -o algorithm=2",
)


def barriers(algorithm: int) -> int:
    """How often the turn of a unit waits for all shards."""
    return 3 - algorithm


def sharded_shape(case: Case) -> Shape:
    """Equal stages between sharded vocabulary layers."""
    loss = {1: "T", 2: "S"}[case[ALGORITHM]]
    return Shape(case.p, case.p * case.v, (case.k,) * case.m, embed="E", loss=loss)


def vocabulary_work(case: Case) -> Fraction:
    """What a device spends on its shards, for the whole batch."""
    return case.m * (case.price("S") + case.price("T"))


def balanced_makespan(case: Case) -> Fraction:
    """The vocabulary passes add their work and no bubble to 1F1B."""
    return flush_makespan(case) + vocabulary_work(case)


def passes_hide(case: Case) -> bool:
    """Enough units to fill the pipeline, and nothing else to wait for."""
    free = case.price("E") == case.price("D") == case.hop == 0
    return case.m * case.k >= case.p and case.B >= case.F and free


def turning_peak(case: Case) -> tuple[Fraction, ...]:
    """1F1B holds a unit more for every time its turn waits for all devices."""
    more = case.k - 1 + barriers(case[ALGORITHM])
    return live_peak(case, live=lambda r: case.p - r + more)
