"""Bytes of each GPU by what they are for, when it holds most.

What a run holds all the time and what its ops keep is predicted as for a run (plan/memory.py,
cost/workload.py). A GPU holds more than a program allocates: the context of its process, what its
driver keeps, communicators, and gaps that the allocator cannot use.
"""

from typing import NamedTuple

from penstock.check.memory import bound
from penstock.cluster.gpu import Gpu
from penstock.core.homes import weight_homes
from penstock.core.lifetimes import GIVEN, TEMPORARY
from penstock.core.scoreboard import Run
from penstock.cost.model import SIZES
from penstock.cost.temporary import loss_bytes
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.step_schedule import StepSchedule
from penstock.plan.communicators import communication_bytes
from penstock.plan.memory import Footprint, held_footprints
from penstock.sim.memory import SizeChanges, changes_by_size, levels_at_peaks

CONTEXT = 1 << 29
"""A process on a GPU, as measured on an H200: half a GiB."""
DRIVER = 1 << 30
"""What a driver keeps of the memory in the data sheet. Assumption: torch is told of 79.1 GiB on an
H100 with 80 GB and of 139.8 GiB on an H200 with 141 GB."""
GAPS = 0.08
"""Share of what a step adds that lies in gaps of the allocator. Assumption."""
ACTIVATIONS, KEYS = ("act", "stash", "ckpt"), ("kv", "dkv")


def context_bytes(gpu: Gpu) -> int:
    """What a GPU holds beside what its program allocates, as it was measured where it was."""
    return CONTEXT + DRIVER if gpu.measured is None else gpu.measured.context


def gaps_share(gpu: Gpu) -> float:
    """The share of what a step adds that lies in gaps of the allocator, in the same way."""
    return GAPS if gpu.measured is None else gpu.measured.gaps


class DeviceMemory(NamedTuple):
    """Bytes of one rank of a device."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    keys_values: int
    logits: int
    temporaries: int
    communication_buffers: int
    context: int
    fragmentation: int

    @property
    def total(self) -> int:
        return sum(self)


def device_memories(
    layout: TrainingLayout, step: StepSchedule, cost: LayoutCost, done: Run
) -> tuple[DeviceMemory, ...]:
    """One for each device of the schedule, of the rank that computes most."""
    owners = 1 if layout.shard == "none" else layout.copies
    held = held_footprints(step.schedule, cost.workload, owners=owners, gathered=step.gathered)
    changes = changes_by_size(step.schedule, cost)
    levels = levels_at_peaks(step.schedule, changes, done)
    whole = max(map(max, cost.workload.lengths))
    slot = layout.rows * max(cost.workload.boundaries(whole), default=0)
    last = weight_homes(step.schedule)[step.schedule.shape.stages - 1]
    found, proven, slots = [], _proven(step, changes), step.slots
    communication = _communication(layout, step)
    for device, footprint in enumerate(held):
        level = dict.fromkeys(SIZES, 0) | {size: each[device] for size, each in levels.items()}
        _take_place(level)
        level["act"] += max(0, proven[device] - sum(level.values()))
        received = slots[device] * slot + level[GIVEN]
        memory = _memory(layout, footprint, level, received, cost, device in last)
        messages = memory.communication_buffers + communication[device]
        found.append(memory._replace(communication_buffers=messages))
    return tuple(found)


def _take_place(level: dict[str, int]) -> None:
    """Gradients of keys that a backward leaves to earlier slices count from its start, although
    they take the place of what it lets go. What it needs may then be less than nothing, by as much
    as is not there of them yet."""
    level["dkv"] += min(0, level[TEMPORARY])
    level[TEMPORARY] = max(0, level[TEMPORARY])


def _proven(step: StepSchedule, changes: SizeChanges) -> list[int]:
    """What copies beside the compute lane allow at most, whenever they end; 0 without copies."""
    schedule = step.schedule
    if "O" not in schedule.table.kinds:
        return [0] * schedule.shape.devices
    at_start, at_end = changes.whole
    devices = range(schedule.shape.devices)
    levels = (bound(schedule, at_start, at_end, device)[0].max() for device in devices)
    return [int(level * changes.grain) for level in levels]


def _memory(
    layout: TrainingLayout,
    held: Footprint,
    level: dict[str, int],
    received: int,
    cost: LayoutCost,
    at_end: bool,
) -> DeviceMemory:
    """Of one device. The update has its room when that of a step is free: the larger counts."""
    logits = level["logits"]
    temporary = max(level[TEMPORARY], held.end - _kept(level) - received)
    if at_end and level[TEMPORARY] and not logits:
        whole = max(map(max, cost.workload.lengths))
        logits = min(temporary, layout.rows * loss_bytes(cost.workload.part, whole))
    gpu = layout.cluster.gpu
    adds = _kept(level) + received + temporary + level["logits"]
    return DeviceMemory(
        weights=held.weights,
        gradients=held.gradients,
        optimizer=held.optimizer - held.gradients,
        activations=sum(level[size] for size in ACTIVATIONS),
        keys_values=sum(level[size] for size in KEYS),
        logits=logits,
        temporaries=temporary - (logits - level["logits"]),
        communication_buffers=received,
        context=context_bytes(gpu),
        fragmentation=int(gaps_share(gpu) * adds),
    )


def _kept(level: dict[str, int]) -> int:
    return sum(level[size] for size in (*ACTIVATIONS, *KEYS))


def _communication(layout: TrainingLayout, step: StepSchedule) -> list[int]:
    """Bytes of communicators of each device: those of a pipeline, and one for each axis of a cell;
    ranks on the host have none."""
    measured = layout.cluster.gpu.measured
    counts = step.communicators(replicas=layout.mesh.replicas > 1)
    if measured is not None and measured.on_host:
        return [0 for _ in counts]
    cell = layout.mesh.cell
    axes = sum(size > 1 for size in (cell.tensor, cell.ulysses, cell.ring))
    return [communication_bytes(count + axes) for count in counts]
