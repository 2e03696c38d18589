"""Update the weights of some stages beside the pipeline, on the copy lane of their device.

Optimizer state that is kept on the host costs no memory of the device, and there is time for it:
the last stages of the model have their last gradient long before the step ends. Their `U` stands in
the copy lane: gradients go down, are applied on the host, new weights come up, while other stages
still compute. The time of U is all of that.

    1f1b, p = 2, m = 2                  update stage 1 beside the pipeline
    device 1 compute  F0 B0 F1 B1       F0 B0 F1 B1
    device 1 copy                                   U

Where the step has its norms already (V), those of the stages go along: a norm can be taken when the
gradient is complete, which is when it can go down. An update that waits for the norms of all stages
(U) stands behind all copies; one that waits for its own norm (A) follows that.

    device 1 compute  F0 B0 F1 B1 V U   F0 B0 F1 B1
    device 1 copy                                   V U

Stages of one device are updated in the order in which their last gradients come; copies that a lane
has already keep their order. Source: arXiv:2503.03182.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from penstock.core.graph import graph_of
from penstock.core.homes import weight_homes
from penstock.core.host_order import unit_ends
from penstock.core.meaning import kinds_reading, kinds_writing
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.table import Table
from penstock.errors import ShapeError

_NORMS, _WAITING = kinds_writing("norm"), kinds_reading("norm")
"""Who takes the norm of a stage, and who waits for those of all stages."""

_MOVED = _NORMS | _WAITING | kinds_reading("own")
"""What the end of a step has for each stage."""

_Lanes = dict[tuple[int, str], list[Op]]


def update_on_host(schedule: Schedule, stages: Collection[int]) -> Schedule:
    """The schedule with the updates of these stages in the copy lanes of their devices."""
    homes = weight_homes(schedule)
    for stage in stages:
        if stage not in homes:
            raise ShapeError(
                f"stage {stage} has no weights that could be updated",
                hint=f"stages with weights are {', '.join(map(str, homes))}",
            )
    lanes: _Lanes = {(device, stream): ops for device, stream, ops in schedule.table.lanes()}
    on = {device: [s for s in stages if device in homes[s]] for device, _ in lanes}
    moved = {device: _moved(lanes[device, "compute"], mine) for device, mine in on.items() if mine}
    for device, ops in moved.items():
        lanes[device, "compute"] = [op for op in lanes[device, "compute"] if op not in ops]
        lanes[device, "copy"] = [*lanes.get((device, "copy"), []), *ops]
    whole = _with_lanes(schedule.renamed(f"{schedule.name}+host"), lanes)
    for device, ops in moved.items():
        lanes[device, "copy"] = sorted(lanes[device, "copy"], key=_turn(whole, ops))
    return _with_lanes(whole, lanes)


def _moved(lane: list[Op], stages: list[int]) -> list[Op]:
    """What a compute lane has of the updates of these stages; a U where it has none."""
    found = [op for op in lane if op.kind in _MOVED and op.stage in stages]
    return found or [Op("U", stage, 0) for stage in stages]


def _turn(schedule: Schedule, moved: list[Op]) -> Callable[[Op], tuple[int, ...]]:
    """When an op of a copy lane can run, if every op takes one tick: a copy when it would end, an
    update when the gradient of its stage is complete, but for one that waits for all stages."""
    ends, rows = unit_ends(schedule), schedule.table.rows_by_op
    complete: dict[int, int] = {}
    for op in moved:
        complete[op.stage] = min(_ready(schedule, op), complete.get(op.stage, len(schedule.table)))
    normed = any(op.kind in _NORMS for op in moved)

    def turn(op: Op) -> tuple[int, ...]:
        if op not in moved:
            return 0, int(ends[rows[op][0]])
        waits = normed and op.kind in _WAITING
        return int(waits), complete[op.stage], 1, op.stage

    return turn


def _ready(schedule: Schedule, op: Op) -> int:
    """When all that an op of a stage reads is there."""
    graph, row = graph_of(schedule), schedule.table.rows_by_op[op][0]
    writers = graph.writer[graph.start[row] : graph.start[row + 1]]
    return int(unit_ends(schedule)[writers[writers >= 0]].max(initial=0))


def _with_lanes(schedule: Schedule, lanes: _Lanes) -> Schedule:
    rows = [(device, stream, ops) for (device, stream), ops in lanes.items()]
    return replace(schedule, table=Table.of(rows), derived={})
