"""A plan is a configuration that training reads, with the same numbers."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.arch.presets import model
from penstock.errors import ShapeError
from penstock.estimate.request import layout_from
from penstock.planner.configuration import configuration
from penstock.train.config.load import loads
from penstock.train.config.toml_text import written
from planner.problems import FUSED, row

SIZES = {"layers": 4, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "vocabulary": 256}


def _layout(**changes: Any) -> Any:
    given = row(mesh="tensor=2,pipeline=2", schedule="seq1f1b", slices=4, shard="optimizer")
    return layout_from(given | changes)


def test_training_reads_what_was_planned() -> None:
    settings = loads(written(configuration(_layout(recompute="stages", rows=2))))
    layout = _layout(recompute="stages", rows=2)
    assert settings.mesh.shape == layout.mesh
    assert settings.pipeline.schedule == layout.schedule
    assert (settings.pipeline.devices, settings.pipeline.slices) == (2, 4)
    assert settings.pipeline.recompute == "all"
    assert (settings.batch.length, settings.batch.rows) == (8192, 2)
    assert settings.batch.microbatches == layout.microbatches
    assert settings.model.config == layout.model
    assert (settings.mesh.shard, settings.run.dtype) == ("optimizer", "bfloat16")


def test_training_has_the_layers_of_the_plan() -> None:
    layout = _layout(layers="balanced")
    counts = loads(written(configuration(layout))).pipeline.layers
    assert counts == layout.layers
    assert sum(counts) == layout.model.layers
    assert counts[0] > counts[1]
    assert loads(written(configuration(_layout()))).pipeline.layers == ()


def test_a_model_without_a_name_has_all_its_sizes() -> None:
    layout = _layout(model=SIZES)
    assert loads(written(configuration(layout))).model.config == layout.model


def test_training_has_the_blocks_of_the_plan() -> None:
    layout = replace(_layout(), model=FUSED, layers=(8, 3))
    settings = loads(written(configuration(layout)))
    assert settings.model.config == FUSED
    assert settings.pipeline.layers == (8, 3)
    named = configuration(replace(layout, model=model("tiny-fused"), layers=()))
    assert named["model"] == {"preset": "tiny-fused"}


def test_training_has_the_adapters_of_the_plan() -> None:
    layout = _layout(lora="8:q_proj,v_proj")
    settings = loads(written(configuration(layout)))
    assert settings.lora.adapters == layout.model.lora
    assert layout.model.lora.rank == 8
    assert configuration(layout)["model"] == configuration(_layout())["model"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"recompute": "all"}, "whole stages"), ({"precision": "fp16"}, "does not compute in fp16")],
)
def test_what_a_run_does_not_do_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message) as caught:
        configuration(_layout(**changes))
    assert caught.value.hint
