"""Where weights live, in which order their gradients add up, and how collectives line up."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.check.finding import Finding
from penstock.core.homes import weight_homes
from penstock.core.kernel import kernel
from penstock.core.meaning import MEANING
from penstock.core.ops import SHARD_KINDS
from penstock.core.schedule import Schedule
from penstock.core.table import CODE


def one_home(schedule: Schedule) -> Iterator[Finding]:
    """Stages whose weights would have to live on more devices than the shape declares."""
    gangs = {op.stage for op in schedule.gangs}
    for stage, devices in weight_homes(schedule).items():
        if len(devices) > schedule.shape.copies and stage not in gangs:
            yield _homeless(schedule, stage, devices)


def _homeless(schedule: Schedule, stage: int, devices: list[int]) -> Finding:
    """Blame the ops on the device that has the fewest ops of the stage."""
    table = schedule.table
    of_stage = (table.stage == stage) & ~table.of_kinds(SHARD_KINDS)
    rows = {device: np.flatnonzero(of_stage & (table.device == device)) for device in devices}
    stray = min(reversed(devices), key=lambda device: len(rows[device]))
    home = max(devices, key=lambda device: len(rows[device]))
    ops = tuple(table.op(row) for row in rows[stray][:8])
    return Finding(
        "one-home",
        ops,
        stray,
        f"stage {stage} has ops on devices {', '.join(map(str, devices))}, among them {ops[0]} on "
        f"device {stray}; its weights may live on {schedule.shape.copies}",
        f"move {ops[0]} to device {home}, or declare copies: {len(devices)}",
    )


def unordered_stages(schedule: Schedule) -> tuple[int, ...]:
    """Stages that do not add gradients in one process's order: microbatches up, slices down."""
    table, shape = schedule.table, schedule.shape
    adding = np.array([kind in "BIW" for kind in MEANING], np.uint8)
    last = np.full((len(adding), shape.stages), -1, np.int64)
    wrong = np.zeros(shape.stages, np.uint8)
    columns = (table.kind, table.stage, table.mb, table.slice)
    _descents(len(table), *columns, max(shape.slices), adding, last, wrong)
    return tuple(int(stage) for stage in np.flatnonzero(wrong))


@kernel
def _descents(
    kind: Any, stage: Any, mb: Any, slice: Any, longest: Any, adding: Any, last: Any, wrong: Any
) -> None:
    """Mark stages where a gradient of one kind follows one of a later microbatch."""
    for row in range(len(kind)):
        if adding[kind[row]] and stage[row] < len(wrong):
            turn = mb[row] * longest + longest - 1 - slice[row]
            if turn < last[kind[row], stage[row]]:
                wrong[stage[row]] = 1
            last[kind[row], stage[row]] = turn


def collective_order(schedule: Schedule) -> Iterator[Finding]:
    """Shards of one pass must join their collectives in the same order on every device."""
    table = schedule.table
    for kind in sorted(SHARD_KINDS):
        if CODE[kind] not in table.kind:
            continue
        orders = {
            int(device): schedule.unit[rows]
            for device in range(schedule.shape.devices)
            if (rows := (table.kind == CODE[kind]) & (table.device == device)).any()
        }
        first, reference = next(iter(orders.items()))
        for device, order in orders.items():
            if not np.array_equal(order, reference):
                place = int(np.flatnonzero(order != reference)[0])
                here = np.flatnonzero((table.kind == CODE[kind]) & (table.device == device))
                there = np.flatnonzero((table.kind == CODE[kind]) & (table.device == first))
                ops = (table.op(here[place]), table.op(there[place]))
                yield Finding(
                    "collective-order",
                    ops,
                    device,
                    f"pass {place} of kind {kind} is {ops[0]} on device {device}, but {ops[1]} "
                    f"on device {first}",
                    f"run the {kind} passes in the same order on all devices",
                )
                return
