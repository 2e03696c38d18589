"""Where weights live, in which order their gradients add up, and how collectives line up."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.check.finding import Finding
from penstock.core.buffers import BUFFERS
from penstock.core.gangs import gangs_of, helping_rows
from penstock.core.homes import weight_homes
from penstock.core.kernel import kernel
from penstock.core.meaning import MEANING
from penstock.core.ops import SHARD_KINDS, Op
from penstock.core.rules import NAMES
from penstock.core.schedule import Schedule
from penstock.core.table import CODE
from penstock.core.transfers import moves_of


def one_home(schedule: Schedule) -> Iterator[Finding]:
    """Stages whose weights would have to live on more devices than the shape declares."""
    for stage, devices in weight_homes(schedule).items():
        if len(devices) > schedule.shape.copies:
            yield _homeless(schedule, stage, devices)


def _homeless(schedule: Schedule, stage: int, devices: list[int]) -> Finding:
    """Blame the ops on the device that has the fewest of the stage; on all of them at a tie.

    Where a gang is at home follows from the others, so it counts only where no other op is.
    """
    table = schedule.table
    of_stage = (table.stage == stage) & ~table.of_kinds(SHARD_KINDS) & ~helping_rows(schedule)
    alone = of_stage.copy()
    alone[[gang.home for gang in gangs_of(schedule)]] = False
    chosen = alone if set(devices) <= set(table.device[alone].tolist()) else of_stage
    rows = {device: np.flatnonzero(chosen & (table.device == device)) for device in devices}
    fewest = min(len(found) for found in rows.values())
    strays = [device for device in reversed(devices) if len(rows[device]) == fewest]
    home = max(devices, key=lambda device: len(rows[device]))
    ops = tuple(table.op(row) for device in strays for row in rows[device][:8])
    named = ", ".join(f"{table.op(rows[device][0])} on device {device}" for device in strays)
    return Finding(
        "one-home",
        ops,
        strays[0],
        f"stage {stage} has ops on devices {', '.join(map(str, devices))}, among them {named}; its "
        f"weights may be on {schedule.shape.copies}",
        f"move {ops[0]} to device {home}, or declare copies: {len(devices)}",
    )


def local(schedule: Schedule) -> Iterator[Finding]:
    """What an op saved on one device and another device would have to read."""
    shape = schedule.shape
    if shape.copies == 1 and not shape.weightless and not schedule.table.kinds & {"O", "L"}:
        return  # one home per stage keeps everything that a stage saves on one device
    moves, table = moves_of(schedule), schedule.table
    stays = np.array([not BUFFERS[name].crosses for name in NAMES])
    for move in np.flatnonzero(stays[moves.buffer])[:8]:
        reader, writer = int(moves.reader[move]), int(moves.writer[move])
        ops = (table.op(reader), table.op(writer))
        device = int(table.device[reader])
        yield Finding(
            "local",
            ops,
            device,
            f"{ops[0]} on device {device} reads {BUFFERS[moves.payload(move)].text} that {ops[1]} "
            f"wrote on device {table.device[writer]}",
            f"put {ops[0]} and {ops[1]} on the same device",
        )


def unordered_stages(schedule: Schedule) -> tuple[int, ...]:
    """Stages that do not add gradients in one process's order: microbatches up, slices down."""
    table, shape = schedule.table, schedule.shape
    # Norms add up in B and I, the other weights in B and W: two sums, each with its own order.
    adding = np.array([[kind in sums for kind in MEANING] for sums in ("BI", "BW")], np.uint8)
    last = np.full((len(adding), shape.stages), -1, np.int64)
    wrong = np.zeros(shape.stages, np.uint8)
    # A member of a gang away from home adds nothing: it stands behind all stages.
    stage = np.where(helping_rows(schedule), shape.stages, table.stage)
    columns = (table.kind, stage, table.mb, table.slice)
    _descents(len(table), *columns, max(shape.slices), adding, last, wrong)
    return tuple(int(stage) for stage in np.flatnonzero(wrong))


@kernel
def _descents(
    kind: Any, stage: Any, mb: Any, slice: Any, longest: Any, adding: Any, last: Any, wrong: Any
) -> None:
    """Mark stages where a term of a sum follows one of a later microbatch."""
    for row in range(len(kind)):
        for total in range(len(adding)):
            if adding[total, kind[row]] and stage[row] < len(wrong):
                turn = mb[row] * longest + longest - 1 - slice[row]
                if turn < last[total, stage[row]]:
                    wrong[stage[row]] = 1
                last[total, stage[row]] = turn


def collective_order(schedule: Schedule) -> Iterator[Finding]:
    """Shards of one pass must join their collectives in the same order on every device."""
    table = schedule.table
    for kind in sorted(SHARD_KINDS & table.kinds):
        orders: dict[tuple[int, ...], list[int]] = {}
        for device in range(schedule.shape.devices):
            rows = (table.kind == CODE[kind]) & (table.device == device)
            orders.setdefault(tuple(schedule.unit[rows].tolist()), []).append(device)
        if len(orders) > 1:
            yield _out_of_order(schedule, kind, orders)
            return


def _out_of_order(
    schedule: Schedule, kind: str, orders: dict[tuple[int, ...], list[int]]
) -> Finding:
    """Blame the device whose order is rarest: the first pass that differs, and what belongs there.

    Where two orders are equally common nobody can tell, so both devices are named.
    """
    rare, *_, usual = sorted(orders, key=lambda order: len(orders[order]))
    place = next(i for i, (one, other) in enumerate(zip(rare, usual)) if one != other)
    tie = len(orders[rare]) == len(orders[usual])
    devices = [orders[rare][0], *([orders[usual][0]] if tie else [])]
    ops = tuple(
        Op(kind, device, *schedule.shape.mb_and_slice(unit[place]))
        for device in devices
        for unit in (rare, usual)
    )
    return Finding(
        "collective-order",
        ops,
        devices[0],
        f"pass {place} of kind {kind} is {ops[0]} on device {devices[0]}, but {ops[1]} "
        f"on device {', '.join(map(str, orders[usual]))}",
        f"run the {kind} passes in the same order on all devices",
    )
