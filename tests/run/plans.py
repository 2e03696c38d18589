"""Small plans for the ranks of the tests' crew."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.plan.slices import even
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from penstock.transform import recompute_all

SMALL = ModelConfig(4, 16, 24, 4, 2, 4, 40)


def plan_of(
    schedule: Schedule,
    model: ModelConfig = SMALL,
    dtype: torch.dtype = torch.float64,
    *,
    length: int = 24,
    rows: int = 1,
    layers: Sequence[int] = (),
) -> StepPlan:
    """Every microbatch in equal slices, layers as even as can be."""
    cuts = tuple(even(length, count) for count in schedule.shape.slices)
    sized = replace(model, element_bytes=dtype.itemsize)
    layout = Layout.of(sized, schedule, length, layers=layers, dtype=dtype)
    return StepPlan(layout, schedule, cuts, rows)


def heavy(name: str, per_stage: int, dtype: torch.dtype = torch.float32, **sizes: int) -> StepPlan:
    """A plan whose activations are more than the odd bytes around them."""
    schedule = build(name, **{"devices": 4, "microbatches": 6} | sizes)  # type: ignore[arg-type]
    model = ModelConfig(per_stage * schedule.shape.stages, 64, 192, 4, 2, 16, 256)
    return plan_of(schedule, model, dtype, length=128)


def again(plan: StepPlan) -> StepPlan:
    """The same with every forward run again."""
    return replace(plan, schedule=recompute_all(plan.schedule))


def wide_and_normed(plan: StepPlan) -> StepPlan:
    """The same with norms of queries and keys, whose heads are most of what is kept."""
    model = replace(plan.layout.model, kv_heads=4, head_size=64, qk_norm=True)
    return replace(plan, layout=replace(plan.layout, model=model))


def tied(plan: StepPlan) -> StepPlan:
    """The same with one weight for embedding and head."""
    model = replace(plan.layout.model, tied=True)
    return replace(plan, layout=replace(plan.layout, model=model))


def in_cells(plan: StepPlan, cell: CellShape) -> StepPlan:
    """The same on devices of several ranks each."""
    return replace(plan, layout=replace(plan.layout, cell=cell))


def heavy_cells(
    name: str,
    cell: CellShape,
    *,
    devices: int,
    again_all: bool = False,
    is_tied: bool = False,
    length: int = 256,
    **sizes: int,
) -> StepPlan:
    """A plan on cells whose activations are more than the odd bytes around them."""
    schedule = build(name, devices=devices, **{"microbatches": 2 * devices} | sizes)  # type: ignore[arg-type]
    model = ModelConfig(2 * schedule.shape.stages, 256, 640, 8, 4, 32, 512, tied=is_tied)
    plan = in_cells(plan_of(schedule, model, torch.float32, length=length), cell)
    return again(plan) if again_all else plan
