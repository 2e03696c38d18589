"""The report of a run whose devices are cells: what was predicted of its memory, and measured."""

import json

import pytest

from loops import one_of
from penstock.plan.memory_by_class import ClassBytes
from train.runs.ranks import Setting, fresh

pytestmark = pytest.mark.torch

SIZES = {"hidden": 128, "ffn": 320, "heads": 8, "kv_heads": 4, "head_size": 16, "vocabulary": 300}
"""Large enough that tensors of a layer are more than the odd bytes around them."""


@pytest.mark.parametrize("mesh", one_of(2, [("tensor=2",), ("sequence=2",)]))
def test_a_run_in_cells_holds_what_was_predicted(setting: Setting, mesh: str) -> None:
    model = [f"model.{name}={size}" for name, size in SIZES.items()]
    ran = setting.run(
        *model,
        *("run.steps=1", "run.dtype=float32", "batch.length=256", "optimizer.warmup_steps=0"),
        *("pipeline.devices=1", f"mesh.{mesh}", "log.report=true", "log.compare=[]"),
        name=fresh("cells"),
        flags=("--json",),
    )
    assert ran.codes == (0, 0), ran.said
    told = json.loads(ran.said[0][ran.said[0].index("{") :])
    (found,) = told["schedules"]
    assert found["predicted_peak"] == [pytest.approx(p, rel=0.02) for p in found["measured_peak"]]
    for what in ("predicted", "measured"):
        classes = [ClassBytes(**each) for each in found[f"{what}_classes"]]
        assert [each.step for each in classes] == found[f"{what}_peak"]
    (predicted,), (measured,) = found["predicted_classes"], found["measured_classes"]
    for name in ("weights", "gradients", "optimizer"):
        assert predicted[name] == measured[name]
    for name in ("activations", "keys_values"):
        assert predicted[name] == pytest.approx(measured[name], rel=0.02)
