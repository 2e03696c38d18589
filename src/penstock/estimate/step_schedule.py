"""The schedule of a whole step of a layout, made once for all layouts that have the same.

What a schedule is depends on few of a layout's numbers, and making and proving it takes longer than
all the rest. So it is made without a model: boundaries are one byte, which the cost model knows.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal_sizes
from penstock.check import require
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.estimate.layout import TrainingLayout
from penstock.lower import lower_for_running
from penstock.plan.communicators import communicators
from penstock.plan.memory import Gathered
from penstock.plan.receive_slots import slot_counts
from penstock.plan.slices import align, equal_flops_of_model
from penstock.run.program.rotation import rotation_of
from penstock.run.program.sharded_schedule import TWO_BUFFERS, shard_weights
from penstock.run.program.step_end import end_step
from penstock.schedules import build
from penstock.transform import combine

KEPT = 256
"""Schedules that are kept; one of 16 devices and 256 microbatches takes a few MB."""


@dataclass(frozen=True)
class StepSchedule:
    """A schedule with the end of a step, and what its devices need for it."""

    schedule: Schedule
    lengths: tuple[int, ...]
    """Tokens of the slices of a sequence."""
    slots: tuple[int, ...]
    """Receive slots of each device."""
    communicators: tuple[tuple[int, ...], tuple[int, ...]]
    """How many each device takes part in, alone and with other replicas; those of a cell apart."""
    gathered: tuple[Gathered, ...] = ()
    """Who uses the buffers of each device, where weights are gathered."""


@dataclass(frozen=True)
class ScheduleRequest:
    """All that the schedule of a step depends on."""

    name: str
    sizes: tuple[int, int, int | None, int | None]
    options: tuple[tuple[str, str], ...]
    changes: tuple[str, ...]
    lengths: tuple[int, ...]
    reduced: bool
    full: bool


def step_schedule(layout: TrainingLayout) -> StepSchedule:
    """The schedule of a layout's step."""
    return _made(schedule_request(layout))


def schedule_request(layout: TrainingLayout) -> ScheduleRequest:
    """What layouts have in common that have the same schedule."""
    wanted = {
        "recompute": layout.recompute.whole_stages,
        "vocabulary": layout.vocabulary,
        "offload": layout.offload == "all",
    }
    changes = tuple(change for change, wants in wanted.items() if wants)
    sizes = (layout.pipeline, layout.microbatches, layout.chunks, layout.slices)
    lengths = slice_lengths(layout.model, layout.tokens, layout.slices or 1, layout.mesh.sequence)
    reduced = layout.copies * layout.mesh.tensor > 1
    full = layout.shard == "full"
    return ScheduleRequest(layout.schedule, sizes, layout.options, changes, lengths, reduced, full)


@lru_cache(maxsize=1024)
def slice_lengths(model: ModelConfig, tokens: int, count: int, ranks: int) -> tuple[int, ...]:
    """Slices of equal FLOPs, as a run cuts them unless it is told otherwise; a token or more for
    each rank that shares them."""
    if count == 1:
        return (tokens,)
    if tokens < count * ranks:
        raise ShapeError(
            f"{tokens} tokens cannot be cut into {count} slices for {ranks} ranks",
            hint=f"give {count * ranks} tokens or more",
        )
    found = align(equal_flops_of_model(model, tokens, count, minimum=ranks))
    return tuple(found) if min(found) >= ranks else deal_sizes(tokens, count)


@lru_cache(maxsize=KEPT)
def _made(request: ScheduleRequest) -> StepSchedule:
    devices, microbatches, chunks, slices = request.sizes
    plain = build(
        request.name,
        devices=devices,
        microbatches=microbatches,
        chunks=chunks,
        slices=slices,
        options=dict(request.options),
    )
    _refuse_unpriced(plain, len(request.lengths))
    _refuse_twice(plain, request.changes)
    schedule = combine(plain, request.changes) if request.changes else plain
    return _whole_step(schedule, request.lengths, reduced=request.reduced, full=request.full)


def step_of(
    schedule: Schedule, layout: TrainingLayout, lengths: tuple[int, ...] = ()
) -> StepSchedule:
    """The step of a layout in the order of any schedule, such as one of a file; slices of equal
    FLOPs, unless their lengths are given."""
    count = max(schedule.shape.slices)
    lengths = lengths or slice_lengths(layout.model, layout.tokens, count, layout.mesh.sequence)
    _refuse_unpriced(schedule, len(lengths))
    reduced = layout.copies * layout.mesh.tensor > 1
    return _whole_step(schedule, lengths, reduced=reduced, full=layout.shard == "full")


def _whole_step(
    schedule: Schedule, lengths: tuple[int, ...], *, reduced: bool, full: bool
) -> StepSchedule:
    """A schedule with the shares of its slices, and with what a run adds at the end of a step."""
    shape = replace(schedule.shape, boundary_bytes=(1,) * (schedule.shape.stages - 1))
    if len(lengths) > 1:
        shares = tuple(Fraction(count, sum(lengths)) for count in lengths)
        shape = replace(shape, slice_share=(shares,) * shape.microbatches)
    schedule = replace(schedule, shape=shape, derived={})
    gathered: tuple[Gathered, ...] = ()
    if full:
        schedule = shard_weights(schedule, TWO_BUFFERS)
        turns = [rotation_of(schedule, device) for device in range(schedule.shape.devices)]
        gathered = tuple(Gathered(each.users("weight"), each.users("dw")) for each in turns)
    if not schedule.table.kinds & {"U", "V"}:
        schedule = end_step(schedule, reduced=reduced)
    require(schedule)
    program = lower_for_running(schedule)
    joined = (communicators(program), communicators(program, replicas=2))
    return StepSchedule(schedule, lengths, tuple(slot_counts(program)), joined, gathered)


def _refuse_twice(schedule: Schedule, changes: tuple[str, ...]) -> None:
    if "recompute" in changes and schedule.table.kinds & set("NO"):
        raise ShapeError(
            f"{schedule.name} computes forwards again or moves their activations, but recompute is "
            "stages",
            hint="leave recompute out",
        )


def _refuse_unpriced(schedule: Schedule, slices: int) -> None:
    if schedule.shape.weightless:
        raise ShapeError(
            f"{schedule.name} has stages of attention alone, which are not estimated",
            hint="take a schedule of whole layers; `penstock simulate --model` has this one",
        )
    if {*schedule.shape.slices} != {slices}:
        raise ShapeError(
            f"{schedule.name} cuts sequences into other numbers of slices than {slices}, which is "
            "not estimated",
            hint="take a schedule whose slices are those of -k",
        )
