"""The schedule of a whole step of a layout, made once for all layouts that have the same.

What a schedule is depends on few of a layout's numbers, and making and proving it takes longer than
all the rest. So it is made without a model: boundaries are one byte, which the cost model knows.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from penstock.check import require
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.estimate.layout import Layout
from penstock.plan.memory import Gathered
from penstock.plan.receive_slots import slot_counts
from penstock.run.program.rotation import rotation_of
from penstock.run.program.sharded_schedule import TWO_BUFFERS, shard_weights
from penstock.run.program.step_end import end_step
from penstock.schedules import build
from penstock.transform import combine

KEPT = 64
"""Schedules that are kept; one of 16 devices and 256 microbatches takes a few MB."""


@dataclass(frozen=True)
class StepSchedule:
    """A schedule with the end of a step, and what its devices need for it."""

    schedule: Schedule
    slots: tuple[int, ...]
    """Receive slots of each device."""
    gathered: tuple[Gathered, ...] = ()
    """Who uses the buffers of each device, where weights are gathered."""


@dataclass(frozen=True)
class _Request:
    name: str
    sizes: tuple[int, int, int | None, int | None]
    options: tuple[tuple[str, str], ...]
    changes: tuple[str, ...]
    reduced: bool
    full: bool


def step_schedule(layout: Layout) -> StepSchedule:
    """The schedule of a layout's step."""
    changes = ("vocabulary",) * layout.vocabulary + ("offload",) * (layout.offload == "all")
    sizes = (layout.pipeline, layout.microbatches, layout.chunks, layout.slices)
    reduced = layout.copies * layout.mesh.tensor > 1
    full = layout.shard == "full"
    return _made(_Request(layout.schedule, sizes, layout.options, changes, reduced, full))


@lru_cache(maxsize=KEPT)
def _made(request: _Request) -> StepSchedule:
    devices, microbatches, chunks, slices = request.sizes
    plain = build(
        request.name,
        devices=devices,
        microbatches=microbatches,
        chunks=chunks,
        slices=slices,
        options=dict(request.options),
    )
    _refuse_unpriced(plain)
    schedule = combine(plain, request.changes) if request.changes else plain
    shape = replace(schedule.shape, boundary_bytes=(1,) * (schedule.shape.stages - 1))
    schedule = replace(schedule, shape=shape, derived={})
    gathered: tuple[Gathered, ...] = ()
    if request.full:
        schedule = shard_weights(schedule, TWO_BUFFERS)
        turns = [rotation_of(schedule, device) for device in range(schedule.shape.devices)]
        gathered = tuple(Gathered(each.users("weight"), each.users("dw")) for each in turns)
    if not schedule.table.kinds & {"U", "V"}:
        schedule = end_step(schedule, reduced=request.reduced)
    require(schedule)
    return StepSchedule(schedule, tuple(slot_counts(schedule)), gathered)


def _refuse_unpriced(schedule: Schedule) -> None:
    if schedule.shape.weightless:
        raise ShapeError(
            f"{schedule.name} has stages of attention alone, which are not estimated",
            hint="take a schedule of whole layers; `penstock simulate --model` has this one",
        )
    if len(set(schedule.shape.slices)) > 1:
        raise ShapeError(
            f"{schedule.name} cuts sequences into different numbers of slices, which is not "
            "estimated",
            hint="take a schedule with as many slices for each microbatch",
        )
