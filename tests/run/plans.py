"""Small plans for the ranks of the tests' crew."""

from dataclasses import replace

import torch
from penstock.run.program.plan import RunPlan

from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.plan.slices import even
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
) -> RunPlan:
    """Every microbatch in equal slices, layers as even as can be."""
    cuts = tuple(even(length, count) for count in schedule.shape.slices)
    return RunPlan(replace(model, element_bytes=dtype.itemsize), schedule, cuts, (), dtype, rows)


def heavy(name: str, per_stage: int, dtype: torch.dtype = torch.float32, **sizes: int) -> RunPlan:
    """A plan whose activations are more than the odd bytes around them."""
    schedule = build(name, **{"devices": 4, "microbatches": 6} | sizes)  # type: ignore[arg-type]
    model = ModelConfig(per_stage * schedule.shape.stages, 64, 192, 4, 2, 16, 256)
    return plan_of(schedule, model, dtype, length=128)


def again(plan: RunPlan) -> RunPlan:
    """The same with every forward run again."""
    return replace(plan, schedule=recompute_all(plan.schedule))


def wide_and_normed(plan: RunPlan) -> RunPlan:
    """The same with norms of queries and keys, whose heads are most of what is kept."""
    return replace(plan, model=replace(plan.model, kv_heads=4, head_size=64, qk_norm=True))
