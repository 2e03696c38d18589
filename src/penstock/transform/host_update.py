"""Update the weights of some stages beside the pipeline, on the copy lane of their device.

Optimizer state that is kept on the host costs no memory of the device, and there is time for it:
the last stages of the model have their last gradient long before the step ends. Their `U` stands in
the copy lane: gradients go down, are applied on the host, new weights come up, while other stages
still compute. The time of U is all of that.

    1f1b, p = 2, m = 2                  update stage 1 beside the pipeline
    device 1 compute  F0 B0 F1 B1       F0 B0 F1 B1
    device 1 copy                                   U

Stages of one device are updated in the order in which their last gradients come.
Source: arXiv:2503.03182.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from penstock.core.homes import weight_homes
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.table import Table
from penstock.errors import ShapeError


def update_on_host(schedule: Schedule, stages: Collection[int]) -> Schedule:
    """The schedule with a U of each of these stages at the end of its devices' copy lanes."""
    homes = weight_homes(schedule)
    for stage in stages:
        if stage not in homes:
            raise ShapeError(
                f"stage {stage} has no weights that could be updated",
                hint=f"stages with weights are {', '.join(map(str, homes))}",
            )
    lanes = {(device, stream): ops for device, stream, ops in schedule.table.lanes()}
    for stage in sorted(stages, key=lambda stage: _last_row(schedule, stage)):
        for device in homes[stage]:
            lanes[device, "copy"] = [*lanes.get((device, "copy"), []), Op("U", stage, 0)]
    rows = [(device, stream, ops) for (device, stream), ops in lanes.items()]
    return replace(schedule.renamed(f"{schedule.name}+host"), table=Table.of(rows), derived={})


def _last_row(schedule: Schedule, stage: int) -> int:
    """Where the stage is touched last in its lane."""
    return int(np.flatnonzero(schedule.table.stage == stage)[-1])
