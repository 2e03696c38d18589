"""The end of a training step as ops: gradients reduced, the norm taken, weights updated.

A schedule says how a batch goes forward and back. What follows is the same for all of them, and
runs by the same rules: a stage's gradients are added up over replicas (Z) on the collective lane as
soon as the last of them is there, its norm is taken (V) and its weights are updated (U) at the end
of the compute lane. An update waits for the norms of all stages, because clipping needs the whole.

    1f1b, p = 2, m = 2, two replicas
    device 1 compute     F0 B0 F1 B1    V U
    device 1 collective              Z

So the next step begins on all devices at once, when the last one has its norm. To let each go on by
itself, a stage can be updated early (A), by what its own norm says, while the norms are added up.
The next step confirms that (C) where it can no longer wait: in front of the first op that could not
be run again with other weights.

    device 0 compute     F0 F1 C B0 B1 V A
    device 1 compute     F0 C B0 F1 B1 V A

Stages whose optimizer state is on the host have both in the copy lane (transform/host_update.py).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.begun import first_forwards
from penstock.core.homes import home_column, shard_homes, weight_homes
from penstock.core.meaning import kinds_writing
from penstock.core.ops import STREAMS, Op
from penstock.core.schedule import Schedule
from penstock.core.table import CODE, OpColumns, Table
from penstock.errors import RunError
from penstock.transform import update_on_host

_ADDING = kinds_writing("dw")
"""Kinds that add to the weight gradient of their stage."""

StreamLanes = dict[tuple[int, str], list[Op]]


def end_step(
    schedule: Schedule, *, reduced: bool, ties: Sequence[tuple[int, int]] = ()
) -> Schedule:
    """The schedule with the end of a step; `ties` are pairs of stages that share a weight.

    Without replicas to reduce over, only stages that share a weight have a Z. Reductions that the
    schedule has already are all that their stages need.
    """
    table = schedule.table.followed_by(_behind(schedule, "VU", reduced=reduced, ties=ties))
    return _ended(schedule, table, ties)


def end_step_early(
    schedule: Schedule, *, reduced: bool, ties: Sequence[tuple[int, int]] = ()
) -> Schedule:
    """The same with updates that wait for no other stage, and those of the step before confirmed
    on the way."""
    ended = schedule.table.followed_by(_behind(schedule, "VA", reduced=reduced, ties=ties))
    lanes: StreamLanes = {(device, stream): ops for device, stream, ops in ended.lanes()}
    begun, table = first_forwards(schedule), schedule.table
    homes = _homes(schedule)
    for device in range(schedule.shape.devices):
        lane = lanes[device, "compute"]
        count = int((begun & (table.device == device)).sum())
        checks = [Op("C", stage, 0) for stage, devices in homes.items() if device in devices]
        if not checks:
            raise RunError(
                f"device {device} of {schedule.name} has no weights, so that it does not learn "
                "whether an update of others was right",
                hint='set optimizer.validation to "before"',
            )
        lanes[device, "compute"] = [*lane[:count], *checks, *lane[count:]]
    rows = [(device, stream, ops) for (device, stream), ops in lanes.items()]
    return _ended(schedule, Table.of(rows), ties)


StepEnd = Callable[..., Schedule]
"""One of the two."""


def with_host_updates(end: StepEnd, stages: Collection[int]) -> StepEnd:
    """A step that ends the same way, with the updates of these stages on the host."""

    def ended(schedule: Schedule, **given: Any) -> Schedule:
        return update_on_host(end(schedule, **given), stages)

    return ended if stages else end


def _homes(schedule: Schedule) -> dict[int, list[int]]:
    return weight_homes(schedule) | shard_homes(schedule.shape)


def _behind(
    schedule: Schedule, kinds: str, *, reduced: bool, ties: Sequence[tuple[int, int]]
) -> Table:
    """What comes behind the lanes: reductions, and ops of these kinds for every stage."""
    homes, tied = _homes(schedule), {stage for tie in ties for stage in tie}
    there = set(schedule.table.stage[schedule.table.of_kinds("Z")].tolist())
    summed = [
        (stage, device)
        for stage in sorted(homes, key=_last_gradients(schedule).__getitem__)
        if (reduced or stage in tied) and stage not in there
        for device in homes[stage]
    ]
    every = [(stage, device) for stage, devices in homes.items() for device in devices]
    at = np.array([*summed, *every * len(kinds)], np.int32).reshape(-1, 2)
    counts = [len(summed), *[len(every)] * len(kinds)]
    streams = [STREAMS.index(name) for name in ("collective", *["compute"] * len(kinds))]
    codes = np.array([CODE["Z"], *map(CODE.__getitem__, kinds)], np.uint8)
    zero = np.zeros(len(at), np.int32)
    ops = OpColumns(np.repeat(codes, counts), at[:, 0], zero, zero)
    return Table.of_columns(ops, at[:, 1], np.repeat(np.array(streams, np.int32), counts))


def _ended(schedule: Schedule, table: Table, ties: Sequence[tuple[int, int]]) -> Schedule:
    shape = schedule.shape
    if shape.ties != tuple(ties):
        shape = replace(shape, ties=tuple(ties))
    return schedule.with_table(table, shape=shape)


def _last_gradients(schedule: Schedule) -> dict[int, int]:
    """The position at which the gradient of each stage is complete."""
    table, homes = schedule.table, home_column(schedule)
    rows = np.flatnonzero(table.of_kinds(_ADDING))
    last = np.full(int(homes.max()) + 1, -1)
    last[homes[rows]] = rows  # of equal homes the last one stays
    stages = np.flatnonzero(last >= 0)
    places = last[stages] - table.lane_start[table.lane[last[stages]]]
    return dict(zip(stages.tolist(), places.tolist()))
