"""Layouts of the sweep that arXiv:2311.05610 publishes, as rows."""

from typing import Any

from penstock.estimate.layout import TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.price import Estimate, estimate, layout_cost
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import StepSchedule, step_schedule

LLAMA_13B = {"layers": 40, "hidden": 5120, "ffn": 13824, "heads": 40, "vocabulary": 128000}
LLAMA_65B = {"layers": 80, "hidden": 8192, "ffn": 22016, "heads": 64, "vocabulary": 128000}
BATCH = 2048 * 2048


def row(**changes: Any) -> dict[str, Any]:
    """13B on 64 GPUs, each with all of it."""
    found = {
        "model": LLAMA_13B,
        "cluster": "a100-80:64",
        "tokens": 2048,
        "batch_tokens": BATCH,
        "schedule": "1f1b",
        "shard": "optimizer",
    }
    return found | changes


def priced(**changes: Any) -> Estimate:
    return estimate(layout_from(row(**changes)))


def priced_step(layout: TrainingLayout) -> tuple[TrainingLayout, StepSchedule, LayoutCost]:
    """A layout with its step and what that costs."""
    step = step_schedule(layout)
    return layout, step, layout_cost(layout, step)
