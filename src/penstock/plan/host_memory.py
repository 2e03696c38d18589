"""How much memory of the host a device's activations need while they wait there, and how much the
optimizer state of stages that the host updates.

An offload takes its room when it is submitted, and a load gives it back when it is: copies of one
device follow each other, so what is copied out later finds what was there before read. So the order
of a device's ops alone says how much is taken at once.
"""

from collections.abc import Collection

import numpy as np

from penstock.core.homes import weight_homes
from penstock.core.host_order import host_order
from penstock.core.schedule import Schedule
from penstock.core.table import Ticks
from penstock.cost.workload import Workload
from penstock.plan.stage_parameters import MAIN_BYTES, stage_elements, stored_elements

TAKES, GIVES = "O", "L"


def moved_bytes(schedule: Schedule, workload: Workload, rows: int = 1) -> Ticks:
    """Bytes that each copy of a schedule moves; `rows` sequences lie side by side."""
    table = schedule.table
    moved = workload.bytes(schedule, "act") * rows * table.of_kinds(TAKES + GIVES)
    for op, share in schedule.shares:
        for row in table.rows_by_op.get(op, ()):
            moved[row] = int(int(moved[row]) * share)
    return moved


def host_peaks(schedule: Schedule, workload: Workload, rows: int = 1) -> list[int]:
    """The most bytes that wait on the host at once, for each device."""
    if TAKES not in schedule.table.kinds:
        return [0] * schedule.shape.devices
    moved = moved_bytes(schedule, workload, rows)
    change = np.where(schedule.table.of_kinds(GIVES), -moved, moved)
    orders = (host_order(schedule, device) for device in range(schedule.shape.devices))
    return [int(np.cumsum(change[order]).max(initial=0)) for order in orders]


def host_states(
    schedule: Schedule, workload: Workload, stages: Collection[int], states: int = 1
) -> list[int]:
    """Bytes on the host of each device for stages that are updated there: main weights and moments,
    held `states` times, the gradient, and values in the type that is computed in where that is
    another one."""
    narrow, main = workload.model.element_bytes, max(MAIN_BYTES, workload.model.element_bytes)
    found, shape = [0] * schedule.shape.devices, schedule.shape
    for stage, devices in weight_homes(schedule).items():
        stored = stored_elements(workload, stage, shape) * (stage in stages)
        gradient = stage_elements(workload, stage, shape) * (stage in stages)
        size = (3 * states * stored + gradient) * main + stored * narrow * (narrow < main)
        for device in devices:
            found[device] += size
    return found
