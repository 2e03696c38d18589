"""Schedules as the papers draw them, for tests that read like the picture.

An op is a letter and its microbatch, with the slice where it is not the first: `F0.1`. The letter
is small for the second stage of a device, and `+` braids a pair. Where stages have no weights a
device runs many of them: ops then stand with their stage in front, as `3F0`. A lane starts with its
device; its ops may go on over several lines.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.timeline import Timeline


def built(
    name: str, p: int, m: int, v: int | None = None, k: int | None = None, **options: Any
) -> Schedule:
    """A registered schedule, in the letters of the papers."""
    return build(name, devices=p, microbatches=m, chunks=v, slices=k, options=options)


def priced(
    schedule: Schedule,
    times: tuple[int, int, int] = (1, 1, 1),
    *,
    hop: Fraction | int = 0,
    sizes: Mapping[str, int] | None = None,
) -> Timeline:
    """Its timeline; `times` are those of F, I and W, so that B costs 2 unless told otherwise."""
    costs = {kind: Fraction(time) for kind, time in zip("FIW", times)}
    amounts = {name: Fraction(size) for name, size in (sizes or {}).items()}
    return simulate(schedule, UnitCost(times=costs, hop=Fraction(hop), sizes=amounts))


def bubble(timeline: Timeline) -> Fraction:
    """Idle time of the longest device, as zero-bubble papers count it."""
    return timeline.span - timeline.work[0]


def chunk_units(peaks: tuple[Fraction, ...], chunks: int) -> list[int]:
    """Peaks counted in activations of one stage."""
    counts = [peak * chunks for peak in peaks]
    assert all(count.denominator == 1 for count in counts)
    return [int(count) for count in counts]


def picture(text: str) -> list[list[str]]:
    """The lanes of a picture, in its own letters."""
    lanes: list[list[str]] = []
    for word in text.split():
        if word.isdigit():
            lanes.append([word])
        else:
            lanes[-1].append(word)
    return lanes


def lanes(schedule: Schedule) -> list[list[str]]:
    """The lanes of a schedule, in the same letters."""
    return [lane(schedule, device) for device in range(schedule.shape.devices)]


def lane(schedule: Schedule, device: int) -> list[str]:
    """One lane, with its device in front."""
    ops = schedule.lane(device)
    stages = sorted({op.stage for op in ops})
    second = {pair[1] for pair in schedule.pairs}
    words = [str(device)]
    for op in ops:
        word = str(op) if schedule.shape.weightless else _letters(op, stages)
        if op in second:
            words[-1] += f"+{word}"
        else:
            words.append(word)
    return words


def _letters(op: Op, stages: list[int]) -> str:
    kind = op.kind if op.stage == stages[0] else op.kind.lower()
    return f"{kind}{op.mb}" + (f".{op.slice}" if op.slice else "")
