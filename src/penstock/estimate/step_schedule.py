"""The schedule of a whole step of a layout, made once for all layouts that have the same.

What a schedule is depends on few of a layout's numbers, and making and proving it takes longer than
all the rest. So it is made without a model: boundaries are one byte, which the cost model knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal_sizes
from penstock.check import require
from penstock.core.program import Channel
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.estimate.layout import WITHOUT_ATTENTION, TrainingLayout
from penstock.estimate.message_sizes import MessageLoad, carry_more
from penstock.lower import slots_for_running
from penstock.plan.communicators import communicator_counts
from penstock.plan.memory import Gathered
from penstock.plan.receive_slots import received_slots
from penstock.plan.slices import align, equal_flops_of_model
from penstock.run.program.rotation import rotation_of
from penstock.run.program.sharded_schedule import TWO_BUFFERS, stays_of
from penstock.run.program.step_end import end_step
from penstock.schedules import build, registry
from penstock.transform import combine, recompute_without_attention
from penstock.transform.sharding import add_collectives

KEPT = 256
"""Schedules that are kept; one of 16 devices and 256 microbatches takes a few MB."""


@dataclass(frozen=True)
class StepSchedule:
    """A schedule with the end of a step, and what its devices need for it."""

    schedule: Schedule
    lengths: tuple[int, ...]
    """Tokens of the slices of a sequence."""
    gathered: tuple[Gathered, ...] = ()
    """Who uses the buffers of each device, where weights are gathered."""
    unequal: tuple[tuple[int, ...], ...] = ()
    """Tokens of the slices of each microbatch, where these are unequally long."""

    @property
    def slots(self) -> tuple[int, ...]:
        """Receive slots of each device."""
        return tuple(received_slots(_channel_slots(self.schedule), self.schedule.shape.devices))

    def communicators(self, *, replicas: bool) -> tuple[int, ...]:
        """How many each device takes part in, alone or with other replicas; those of a cell
        apart."""
        channels = _channel_slots(self.schedule)
        return communicator_counts(self.schedule, channels, 1 + replicas)

    @property
    def microbatches(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of the slices of each."""
        return self.unequal or (self.lengths,) * self.schedule.shape.microbatches


class OrderRequest(NamedTuple):
    """All that the order of a batch depends on."""

    name: str
    sizes: tuple[int, int, int | None, int | None]
    """Devices, microbatches, chunks and slices."""
    options: tuple[tuple[str, str], ...]
    changes: tuple[str, ...]


class ScheduleRequest(NamedTuple):
    """All that the schedule of a step depends on."""

    order: OrderRequest
    lengths: tuple[int, ...]
    reduced: bool
    full: bool
    unequal: tuple[tuple[int, ...], ...] = ()


def step_schedule(layout: TrainingLayout) -> StepSchedule:
    """The schedule of a layout's step."""
    request = schedule_request(layout)
    step = _made(request)
    if not carry_more(step.schedule, layout.model):
        return step
    return _made_for(request, MessageLoad.of(layout))


def schedule_request(layout: TrainingLayout) -> ScheduleRequest:
    """What layouts have in common that have the same schedule."""
    wanted = {
        WITHOUT_ATTENTION: layout.recompute.text == WITHOUT_ATTENTION,
        "recompute": layout.recompute.whole_stages,
        "vocabulary": layout.vocabulary,
        "offload": layout.offload == "all",
    }
    changes = tuple(change for change, wants in wanted.items() if wants)
    sizes = (layout.pipeline, layout.microbatches, _chunks(layout), layout.slices)
    lengths = slice_lengths(layout.model, layout.tokens, layout.slices or 1, layout.mesh.sequence)
    reduced = layout.copies * layout.mesh.tensor > 1
    full = layout.shard == "full"
    order = OrderRequest(layout.schedule, sizes, layout.options, changes)
    return ScheduleRequest(order, lengths, reduced, full, layout.lengths)


def _chunks(layout: TrainingLayout) -> int | None:
    """What the layout says, or what the model says where a schedule counts layers."""
    spec = registry().get(layout.schedule)
    if layout.chunks is not None or spec is None:
        return layout.chunks
    return spec.chunks_of(layout.model.layers, layout.pipeline)


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
    plain = plain_schedule(*request.order[:3])
    if not request.unequal:
        _refuse_unpriced(plain, len(request.lengths))
    _refuse_twice(plain, request.order.changes)
    step = _proven_step(request.order, reduced=request.reduced, full=request.full)
    if not request.unequal:
        return with_lengths(step, request.lengths)
    schedule = step.schedule.with_slice_shares(_shares(request.unequal))
    longest = max(request.unequal, key=sum)
    return replace(step, schedule=schedule, lengths=longest, unequal=request.unequal)


@lru_cache(maxsize=KEPT)
def _made_for(request: ScheduleRequest, load: MessageLoad) -> StepSchedule:
    """The same where messages have unequal sizes."""
    return _carrying(_made(request), load)


def _carrying(step: StepSchedule, load: MessageLoad) -> StepSchedule:
    schedule = step.schedule
    return replace(step, schedule=schedule.with_boundary_bytes(load.parts(schedule, step.lengths)))


@lru_cache(maxsize=KEPT)
def _proven_step(order: OrderRequest, *, reduced: bool, full: bool) -> StepSchedule:
    return _whole_step(_changed(order), reduced=reduced, full=full)


@lru_cache(maxsize=KEPT)
def _changed(order: OrderRequest) -> Schedule:
    plain = plain_schedule(*order[:3])
    changes = [*order.changes]
    if WITHOUT_ATTENTION in changes:
        changes.remove(WITHOUT_ATTENTION)
        plain = recompute_without_attention(plain)
    return combine(plain, changes) if changes else plain


@lru_cache(maxsize=KEPT)
def plain_schedule(
    name: str,
    sizes: tuple[int, int, int | None, int | None],
    options: tuple[tuple[str, str], ...],
) -> Schedule:
    """A registered schedule with devices, microbatches, chunks and slices."""
    devices, microbatches, chunks, slices = sizes
    return build(
        name,
        devices=devices,
        microbatches=microbatches,
        chunks=chunks,
        slices=slices,
        options=dict(options),
    )


def device_of_stages(schedule: Schedule) -> NDArray[np.int64]:
    """The device of each stage; each has one."""
    found = np.zeros(schedule.shape.stages, np.int64)
    found[schedule.table.stage] = schedule.table.device
    return found


def step_of(
    schedule: Schedule, layout: TrainingLayout, lengths: tuple[int, ...] = ()
) -> StepSchedule:
    """The step of a layout in the order of any schedule, such as one of a file; slices of equal
    FLOPs, unless their lengths are given."""
    count = max(schedule.shape.slices)
    lengths = lengths or slice_lengths(layout.model, layout.tokens, count, layout.mesh.sequence)
    _refuse_unpriced(schedule, len(lengths))
    reduced = layout.copies * layout.mesh.tensor > 1
    step = with_lengths(
        _whole_step(schedule, reduced=reduced, full=layout.shard == "full"), lengths
    )
    more = carry_more(step.schedule, layout.model)
    return _carrying(step, MessageLoad.of(layout)) if more else step


def step_of_batch(
    schedule: Schedule, layout: TrainingLayout, lengths: Sequence[Sequence[int]]
) -> Schedule:
    """The whole step of a batch whose microbatches have slices of these lengths."""
    reduced = layout.copies * layout.mesh.tensor > 1
    proven, _ = _proven(schedule, reduced=reduced, full=layout.shard == "full")
    return proven.with_slice_shares(_shares(lengths))


def _shares(lengths: Sequence[Sequence[int]]) -> tuple[tuple[Fraction, ...], ...]:
    """Of the longest microbatch, what each slice is."""
    longest = max(map(sum, lengths))
    return tuple(tuple(Fraction(count, longest) for count in counts) for counts in lengths)


def _whole_step(schedule: Schedule, *, reduced: bool, full: bool) -> StepSchedule:
    """The step of a schedule, and what its devices need."""
    proven, gathered = _proven(schedule, reduced=reduced, full=full)
    return StepSchedule(proven, (), gathered)


def _channel_slots(schedule: Schedule) -> dict[Channel, int]:
    """Receive slots of each channel: what memory needs, and times do not."""
    return schedule.derive("slots for running", slots_for_running)


def _proven(
    schedule: Schedule, *, reduced: bool, full: bool
) -> tuple[Schedule, tuple[Gathered, ...]]:
    """A schedule with boundaries of one byte and with what a run adds at the end of a step, proven;
    and who uses the buffers of each device, where ranks share weights."""
    shape = replace(schedule.shape, boundary_bytes=(1,) * (schedule.shape.stages - 1))
    schedule = replace(schedule, shape=shape, derived={})
    gathered: tuple[Gathered, ...] = ()
    if full:
        schedule, gathered = _sharded(schedule)
    if not schedule.table.kinds & {"U", "V"}:
        schedule = end_step(schedule, reduced=reduced)
    require(schedule)
    return schedule, gathered


def _sharded(schedule: Schedule) -> tuple[Schedule, tuple[Gathered, ...]]:
    """A schedule with gathers, its own or those of a run, and who uses the buffers of each
    device."""
    devices = range(schedule.shape.devices)
    if "G" in schedule.table.kinds:
        turns = [rotation_of(schedule, device) for device in devices]
        return schedule, tuple(Gathered(each.users("weight"), each.users("dw")) for each in turns)
    stays, table = stays_of(schedule, TWO_BUFFERS), schedule.table
    lanes = table.lanes_of("compute").tolist()
    users = {table.lane_device[lane]: Gathered(*stays.users(lane)) for lane in lanes}
    return add_collectives(schedule, stays), tuple(users[device] for device in devices)


def with_lengths(step: StepSchedule, lengths: tuple[int, ...]) -> StepSchedule:
    """A step whose sequences are cut into slices of so many tokens. Who waits for whom does not
    depend on lengths, so that a proof holds for all of them."""
    schedule = step.schedule
    if len(lengths) > 1:
        shares = tuple(Fraction(count, sum(lengths)) for count in lengths)
        schedule = schedule.with_slice_shares((shares,) * schedule.shape.microbatches)
    return replace(step, schedule=schedule, lengths=lengths)


def _refuse_twice(schedule: Schedule, changes: tuple[str, ...]) -> None:
    if "recompute" in changes and schedule.table.kinds & set("NO"):
        raise ShapeError(
            f"{schedule.name} computes forwards again or moves their activations, but recompute is "
            "stages",
            hint="leave recompute out",
        )


def _refuse_unpriced(schedule: Schedule, slices: int) -> None:
    if {*schedule.shape.slices} != {slices}:
        raise ShapeError(
            f"{schedule.name} cuts sequences into other numbers of slices than {slices}, which is "
            "not estimated",
            hint="take a schedule whose slices are those of -k",
        )
