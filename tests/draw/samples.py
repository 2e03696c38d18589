"""Timelines that the tests draw."""

from collections.abc import Callable
from fractions import Fraction

from penstock.core.ops import parse_op
from penstock.core.schedule import Draft, Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.schedules import build
from penstock.sim import Timeline, simulate


def timeline(
    name: str,
    devices: int,
    microbatches: int,
    *,
    slices: int | None = None,
    chunks: int | None = None,
    hop: Fraction = Fraction(0),
) -> Timeline:
    """A registered schedule, priced in unit costs."""
    schedule = build(name, devices=devices, microbatches=microbatches, slices=slices, chunks=chunks)
    return simulate(schedule, UnitCost(hop=hop))


def plain() -> Timeline:
    return timeline("1f1b", 4, 4)


def sliced() -> Timeline:
    return timeline("seq1f1b", 4, 8, slices=4, hop=Fraction(1, 3))


def braided() -> Timeline:
    """Ops of one lane run at the same time."""
    return timeline("dualpipev", 2, 4)


def split() -> Timeline:
    return timeline("zb-v", 4, 8)


def with_copies(**times: int) -> Timeline:
    """One activation goes to the host and comes back, on a stream of its own."""
    compute, copy = (
        [parse_op(op) for op in text.split()] for text in ("0F0 0F1 0B1 0B0", "0O0 0L0")
    )
    schedule = Schedule.of("copies", Shape.even(1, 2), Draft(compute=[compute], copy=[copy]))
    return simulate(
        schedule, UnitCost(times={kind: Fraction(time) for kind, time in times.items()})
    )


def renamed(name: str) -> Timeline:
    return simulate(plain().schedule.renamed(name))


SAMPLES: dict[str, Callable[[], Timeline]] = {
    "plain": plain,
    "sliced": sliced,
    "braided": braided,
    "split": split,
    "copies": lambda: with_copies(O=1, L=1),
    "instant copies": with_copies,
    "one op each": lambda: timeline("1f1b", 1, 1),
}
