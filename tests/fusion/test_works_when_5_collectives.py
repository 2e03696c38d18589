"""FFN Fusion, "It works when" 5: a fused run of n MLPs has n - 1 collectives less each way, as the
runtime counts them, and the predicted latency falls by what they took."""

from dataclasses import replace

import pytest

from cost.counted_ranks import counted
from fusion.samples import run_model
from loops import each
from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.core.ops import Op
from penstock.fusion.fusion_plan import FusionPlan, fused_model
from penstock.schedules import build

pytestmark = pytest.mark.torch

RUN = replace(run_model((8, 8, 8, 8)), vocabulary=24, element_bytes=4)
SCHEDULE = build("1f1b", devices=1, microbatches=1)
LENGTH = 16


def calls(model: ModelConfig, cell: CellShape, kind: str) -> int:
    """Calls along the tensor axis of one op of one rank."""
    found = counted(SCHEDULE, model, cell, (LENGTH,))[0][Op(kind, 0, 0, 0)].calls
    return sum(count for (axis, _), count in found.items() if axis == "tensor")


@pytest.mark.long
@each("parts", (2, 3, 4))
@each("kind", "FB")
def test_replicated_norms_have_one_sum_less_for_each_mlp(parts: int, kind: str) -> None:
    cell = CellShape(tensor=2, norms="replicated")
    fused = fused_model(RUN, FusionPlan(fuse=(range(1, 1 + parts),)))
    assert calls(RUN, cell, kind) - calls(fused, cell, kind) == parts - 1


def test_scattered_norms_have_a_gather_and_a_scattered_sum_less() -> None:
    """In a backward the input of an MLP is gathered once more."""
    cell, fused = CellShape(tensor=2), fused_model(RUN, FusionPlan(fuse=(range(1, 5),)))
    assert calls(RUN, cell, "F") - calls(fused, cell, "F") == 2 * 3
    assert calls(RUN, cell, "B") - calls(fused, cell, "B") == 3 * 3


def test_flops_and_weights_stay_as_they_are() -> None:
    """Section 4: only the norms of the other layers are gone."""
    fused = fused_model(RUN, FusionPlan(fuse=(range(1, 5),)))
    assert fused.flops_per_token == RUN.flops_per_token
    assert RUN.parameters - fused.parameters == 3 * RUN.hidden
    run = sum(RUN.like(layer).saved_bytes for layer in range(1, 5))
    assert run - fused.like(1).saved_bytes == 3 * 2 * RUN.hidden * RUN.element_bytes
