"""The step that a profile has of a model."""

from dataclasses import replace
from json import dumps, loads

import pytest

from penstock.arch.presets import MODELS
from penstock.errors import FormatError, ShapeError
from penstock.profiling.case import case_of_steps, profiled_case
from profiling.made_up import CASE, profile

DEEP = replace(CASE, sizes=replace(CASE.sizes, layers=12))


@pytest.mark.parametrize(("devices", "layers"), [(1, 12), (2, 12), (4, 9), (5, 9), (8, 6), (16, 3)])
def test_a_stage_of_the_step_has_as_many_layers_as_one_of_so_many_devices(
    devices: int, layers: int
) -> None:
    assert DEEP.in_pipeline_of(devices).sizes == replace(DEEP.sizes, layers=layers)


def test_the_step_is_read_again_beside_the_model() -> None:
    record = profile(case=DEEP.record() | {"step_layers": 6, "fused": False})
    assert profiled_case(record).sizes.layers == 12
    assert case_of_steps(record) == replace(
        profiled_case(record), sizes=DEEP.in_pipeline_of(8).sizes
    )
    older = profile(case=DEEP.record())
    assert case_of_steps(older) == profiled_case(older)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "gemma3-1b", "qwen3-8b", "mistral-7b-v0.1"])
def test_a_profile_says_all_of_its_model(name: str) -> None:
    """Sizes alone would make a model without experts or windows of it."""
    case = replace(CASE, name=name, sizes=MODELS[name])
    assert profiled_case(loads(dumps({"case": case.record()}))) == case
    older = {key: value for key, value in case.record().items() if key != "config"}
    assert profiled_case({"case": older}).sizes.hidden == case.sizes.hidden


@pytest.mark.parametrize("name", ["tiny-fused", "subllm-1.3b"])
def test_layers_that_differ_are_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=f"layers of {name} differ") as caught:
        replace(CASE, name=name, sizes=MODELS[name]).refuse_unlike_layers()
    assert "layers that are alike" in str(caught.value.hint)
    replace(CASE, name="mixtral-8x7b", sizes=MODELS["mixtral-8x7b"]).refuse_unlike_layers()


@pytest.mark.parametrize("layers", [0, 2, 13, 6.0, "6", None])
def test_a_step_that_is_none_of_the_model_is_refused(layers: object) -> None:
    record = profile(case=DEEP.record() | {"step_layers": layers})
    with pytest.raises(FormatError, match="the profiled step has"):
        case_of_steps(record)
