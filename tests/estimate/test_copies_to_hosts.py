"""A copy to a host takes as long as the bytes that it moves, which are those that wait there."""

from typing import Any

import numpy as np
import pytest

from loops import each
from penstock.estimate.price import layout_cost
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import step_schedule
from penstock.plan.host_memory import moved_bytes

ROW: dict[str, Any] = {
    "cluster": "h100:4",
    "tokens": 4096,
    "batch_tokens": 8 * 4096,
    "offload": "all",
}
SLICED = {"schedule": "seq1f1b", "slices": 4}


@each("mesh", ["pipeline=4", "tensor=2,pipeline=2", "sequence=2,pipeline=2"])
@each("name", ["llama2-13b", "qwen3-8b", "olmo2-7b"])
@each("order", [{"schedule": "1f1b"}, SLICED])
def test_a_copy_takes_as_long_as_what_waits_on_the_host(
    mesh: str, name: str, order: dict[str, Any]
) -> None:
    """Keys and values of whole sequences go along; slices with norms on queries and keys keep their
    values in addition, and the last stage the input of its last norm."""
    layout = layout_from(ROW | order | {"model": name, "mesh": mesh})
    step = step_schedule(layout)
    cost, rows = layout_cost(layout, step), step.schedule.table.of_kinds("O")
    seconds = cost.computing(step.schedule)[rows] - cost.times.between
    moved = moved_bytes(step.schedule, cost.workload)[rows] / layout.cluster.gpu.host_rate
    assert seconds == pytest.approx(np.asarray(moved), rel=1e-6)
