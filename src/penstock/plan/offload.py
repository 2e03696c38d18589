"""How much of each slice to move to the host, and into how many slices and stages to cut.

Slices of equal compute are of unequal length: the first ones are long and have many activations,
and all of them have the same time to be copied, the forward of the next slice. So a fixed number of
bytes is moved of each: a small share of the first slices, and all of the last ones.
Source: arXiv:2503.10377, sections 5 and 6.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil

from penstock.arch.config import ModelConfig
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.hardware import Hardware
from penstock.cost.transformer import TransformerCost
from penstock.errors import PlanError, ShapeError
from penstock.plan.slices import Lengths, equal_flops_of_model
from penstock.schedules import build
from penstock.sim import simulate

RATIO_GRAIN = 1024
"""Ratios are multiples of one part in so many, rounded down."""
TOKENS = range(2048, 16384 + 1)
"""Tokens of an average slice: below, kernels are slow; above, there are too few to fill stages."""


def offload_ratios(sizes: Sequence[Fraction], most: Fraction) -> tuple[Fraction, ...]:
    """The share of each slice that is offloaded where `most` can be copied in its time.

    The last slice stays: its backward comes at once.

    >>> [str(ratio) for ratio in offload_ratios([4, 3, 2, 2], 2)]
    ['1/2', '2/3', '1', '0']
    """
    ratios = [min(Fraction(1), Fraction(most) / size) for size in sizes[:-1]]
    return (*ratios, Fraction(0))


def resident(sizes: Sequence[Fraction], ratios: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """What is held after each forward, when the slice before it has been copied.

    >>> [str(held) for held in resident([4, 3, 2, 2], offload_ratios([4, 3, 2, 2], 2))]
    ['4', '5', '5', '5']
    """
    held, moved, levels = Fraction(0), Fraction(0), []
    for size, ratio in zip(sizes, ratios):
        held += size - moved
        moved = ratio * size
        levels.append(held)
    return tuple(levels)


@dataclass(frozen=True)
class OffloadChoice:
    """One way to cut a sequence and a model, and what came out when it was simulated."""

    stages: int
    lengths: Lengths
    """Tokens of each slice."""
    ratios: tuple[Fraction, ...]
    time: Fraction
    """Seconds of a step."""
    peak: int
    """Bytes on the fullest device."""


def choices(
    name: str,
    model: ModelConfig,
    hardware: Hardware,
    length: int,
    *,
    stages: Iterable[int],
    slices: Iterable[int],
) -> Iterator[OffloadChoice]:
    """Every way that the schedule called `name` accepts, with ratios whose copies hide."""
    for depth, count in product(stages, slices):
        if length // count in TOKENS and depth <= model.layers:
            with suppress(ShapeError):  # slices that cannot be cut so finely
                lengths = equal_flops_of_model(model, length, count)
                yield _tried(name, model, hardware, depth, lengths)


def fastest_choice(found: Iterable[OffloadChoice], limit: int) -> OffloadChoice:
    """The fastest within so many bytes per device; of equal ones that with the smallest peak."""
    every = list(found)
    fitting = [choice for choice in every if choice.peak <= limit]
    if not fitting:
        least = min((choice.peak for choice in every), default=None)
        raise PlanError(
            f"none of {len(every)} ways to cut stays within {limit:,} bytes on each device",
            hint=f"the smallest peak is {least:,} bytes; allow more stages or slices"
            if least is not None
            else f"slices must have {TOKENS.start:,} to {TOKENS.stop - 1:,} tokens on average",
        )
    return min(fitting, key=lambda choice: (choice.time, choice.peak))


def _tried(
    name: str, model: ModelConfig, hardware: Hardware, stages: int, lengths: Lengths
) -> OffloadChoice:
    """The choice with the ratios that hide, simulated."""

    def built(ratios: Sequence[Fraction]) -> Schedule:
        options = {"ratios": ",".join(map(str, ratios))}
        return build(name, devices=stages, microbatches=1, slices=len(lengths), options=options)

    plain = built([Fraction(0)] * len(lengths))
    cost = TransformerCost.of(plain.shape, model, hardware, lengths)
    ratios = _hidden(plain, cost)
    timeline = simulate(built(ratios), cost)
    return OffloadChoice(stages, lengths, ratios, timeline.makespan, ceil(max(timeline.peak)))


def _hidden(schedule: Schedule, cost: TransformerCost) -> tuple[Fraction, ...]:
    """Shares that the host link moves while the next slice goes forward, on every stage."""
    seconds, held = cost.durations(schedule), cost.amounts(schedule, "act")
    row, last = schedule.table.row_of, schedule.shape.units - 1
    ratios = []
    for slice in range(last):
        fits = [
            int(seconds.ticks[row(Op("F", stage, 0, slice + 1))])
            * seconds.tick
            * cost.hardware.host
            / int(held.ticks[row(Op("F", stage, 0, slice))])
            for stage in range(schedule.shape.stages)
        ]
        ratios.append(Fraction(int(min([*fits, Fraction(1)]) * RATIO_GRAIN), RATIO_GRAIN))
    return (*ratios, Fraction(0))
