"""The step that a profile has of a model."""

from dataclasses import replace

import pytest

from penstock.errors import FormatError
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


@pytest.mark.parametrize("layers", [0, 2, 13, 6.0, "6", None])
def test_a_step_that_is_none_of_the_model_is_refused(layers: object) -> None:
    record = profile(case=DEEP.record() | {"step_layers": layers})
    with pytest.raises(FormatError, match="the profiled step has"):
        case_of_steps(record)
