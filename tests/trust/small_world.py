"""The small world: every registered schedule at every shape small enough to be played out.

At most 4 devices, 6 microbatches, 3 chunks and 4 slices, with the defaults of each option and a
few other values; orders that are searched for, which takes a while, at some of these. A shape
outside a schedule's needs is left out, and so is a case whose lanes are those of an earlier one.
A sample of it, for every day, has two numbers of devices and three of microbatches, and the first
of each schedule is the least that is worth playing. This is the only file here that speaks to the
product.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product
from typing import Any

from penstock.core.ops import Op
from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import Spec, registry

from .board import Play
from .world import Work, World


@dataclass(frozen=True)
class Sizes:
    """The numbers that are combined with each other, and the values that options are given."""

    devices: Sequence[int]
    microbatches: Sequence[int]
    chunks: Sequence[int]
    slices: Sequence[int]
    values: Sequence[int]


ALL = Sizes(range(1, 5), range(1, 7), range(1, 4), range(1, 5), (1, 2, 3, 4, 8))
SEARCHED = replace(ALL, microbatches=(1, 3, 6), values=(1, 4))
SAMPLE = Sizes((2, 4), (3, 4, 6), (1, 2, 3), (2, 4), (2,))
SEARCHED_SAMPLE = Sizes((2, 4), (4,), (1, 2), (2, 4), ())


@cache
def plays(name: str) -> Mapping[str, Play]:
    """Every distinct play of a registered schedule in the small world, by its case."""
    spec = registry()[name]
    return dict(_distinct(_schedules(spec, SEARCHED if _searched(spec) else ALL)))


@cache
def sampled(name: str) -> Mapping[str, Play]:
    """Some of them."""
    spec = registry()[name]
    return dict(_distinct(_schedules(spec, SEARCHED_SAMPLE if _searched(spec) else SAMPLE)))


@cache
def first(name: str) -> Mapping[str, Play]:
    """One of them."""
    spec = registry()[name]
    found = _schedules(spec, SEARCHED_SAMPLE if _searched(spec) else SAMPLE)
    return dict(islice(_distinct(found), 1))


def _distinct(schedules: Iterable[tuple[str, Schedule]]) -> Iterator[tuple[str, Play]]:
    digests: set[str] = set()
    for label, schedule in schedules:
        if schedule.digest not in digests:
            digests.add(schedule.digest)
            yield label, play_of(schedule)


def _schedules(spec: Spec, sizes: Sizes) -> Iterator[tuple[str, Schedule]]:
    chunks = sizes.chunks if spec.chunks is None else (spec.chunks,)
    slices = sizes.slices if spec.sliced else (1,)
    for p, m, v, k in product(sizes.devices, sizes.microbatches, chunks, slices):
        for options in _options(spec, sizes.values):
            try:
                case = spec.case(p, m, v, k, options)
            except ShapeError:
                continue
            yield f"{spec.name} {case}", spec.build(case)


def _options(spec: Spec, values: Sequence[int]) -> Iterator[dict[str, Any]]:
    yield {}
    for option, value in product(spec.options, values):
        yield {option.name: value}


def _searched(spec: Spec) -> bool:
    return spec.generate.__module__.startswith("penstock.search.")


def play_of(schedule: Schedule) -> Play:
    """A schedule as plain data."""
    shape = schedule.shape
    world = World(
        devices=shape.devices,
        stages=shape.stages,
        slices=shape.slices,
        weightless=shape.weightless,
        skips=shape.skips,
        copies=shape.copies,
        embed=shape.embed,
        loss=shape.loss,
    )
    return Play(
        world,
        {(device, stream): _plain(ops) for device, stream, ops in schedule.table.lanes()},
        pairs=tuple(tuple(_plain(strands)) for strands in schedule.pairs),
        loans=tuple((_work(loan.heavy), _work(loan.light)) for loan in schedule.loans),
        gangs=frozenset(_plain(schedule.gangs)),
        after=tuple((_work(note.op), _work(note.earlier)) for note in schedule.after),
    )


def schedule_of(play: Play) -> Schedule:
    """Plain data as a schedule."""
    world = play.world
    shape = Shape(
        devices=world.devices,
        stages=world.stages,
        slices=world.slices,
        weightless=world.weightless,
        skips=world.skips,
        copies=world.copies,
        embed=world.embed,
        loss=world.loss,
    )
    return Schedule.from_lanes(
        "play",
        shape,
        [(device, stream, works) for (device, stream), works in play.lanes.items()],
        pairs=tuple(tuple(Op(*work) for work in strands) for strands in play.pairs),
        loans=tuple(Loan(Op(*heavy), Op(*light), 1) for heavy, light in play.loans),
        gangs=tuple(Op(*work) for work in sorted(play.gangs)),
        after=tuple(After(Op(*work), Op(*earlier)) for work, earlier in play.after),
    )


def _plain(ops: Any) -> list[Work]:
    return [_work(op) for op in ops]


def _work(op: Op) -> Work:
    return op.kind, op.stage, op.mb, op.slice
