"""What all ranks agree on: who has which parameters, and what cannot be run."""

from dataclasses import replace

import pytest
import torch
from penstock.run.program.plan import RunPlan

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import EMBEDDING, HEAD, LAST_NORM, expected_shapes
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import build, registry
from penstock.verify.cases import smallest

pytestmark = pytest.mark.torch

MODEL = ModelConfig(8, 8, 16, 2, 1, 4, 30)


def _plan(schedule: Schedule, model: ModelConfig = MODEL, layers: tuple[int, ...] = ()) -> RunPlan:
    lengths = tuple((4,) * count for count in schedule.shape.slices)
    return RunPlan(model, schedule, lengths, layers)


@pytest.mark.parametrize("name", list(registry()))
def test_every_parameter_is_on_one_stage_and_every_stage_on_one_device(name: str) -> None:
    spec = registry()[name]
    schedule = spec.build(smallest(spec))
    weightless = schedule.shape.weightless
    layers = len(weightless) or schedule.shape.stages + 1
    plan = _plan(schedule, replace(MODEL, layers=layers))
    stages = [stage for stage in range(schedule.shape.stages) if stage not in weightless]
    found = [item for stage in stages for item in plan.layout(stage).parts.items()]
    assert len(found) == len(dict(found))
    assert {name: part.shape for name, part in found} == expected_shapes(plan.model)
    assert sorted(plan.homes) == stages
    assert set(plan.homes.values()) == set(range(schedule.shape.devices))


def test_the_last_stage_has_a_head_of_its_own_even_where_it_is_tied() -> None:
    plan = _plan(build("1f1b", devices=4, microbatches=4), replace(MODEL, tied=True))
    assert EMBEDDING in plan.layout(0).parts
    assert {HEAD, LAST_NORM} <= plan.layout(3).parts.keys()
    assert HEAD not in plan.names
    assert list(plan.names.values()) == list(range(len(plan.names)))


def test_layers_are_spread_as_they_are_given() -> None:
    plan = _plan(build("1f1b", devices=3, microbatches=3), layers=(5, 0, 3))
    assert plan.split == (range(5), range(5, 5), range(5, 8))
    assert plan.layout(1).parts == {}


def test_weights_are_kept_in_32_bits_at_least() -> None:
    plan = _plan(build("1f1b", devices=2, microbatches=2))
    types = (torch.bfloat16, torch.float32, torch.float64)
    mains = [replace(plan, dtype=dtype).main for dtype in types]
    assert mains == [torch.float32, torch.float32, torch.float64]


def test_other_slices_than_the_schedule_has_are_refused() -> None:
    schedule = build("seq1f1b", devices=2, microbatches=2, slices=2)
    with pytest.raises(ShapeError, match=r"cut into \(2, 3\) slices, but seq1f1b has \(2, 2\)"):
        RunPlan(MODEL, schedule, ((4, 4), (4, 2, 2)))


def test_a_stage_with_two_homes_is_refused() -> None:
    lanes = [
        [("F", 0, 0, 0), ("F", 1, 1, 0), ("B", 1, 1, 0), ("B", 0, 0, 0)],
        [("F", 0, 1, 0), ("F", 1, 0, 0), ("B", 1, 0, 0), ("B", 0, 1, 0)],
    ]
    schedule = Schedule.of("copies", Shape(2, 2, (1, 1)), lanes)
    with pytest.raises(ShapeError, match="stage 0 of copies lives on devices 0, 1"):
        _ = _plan(schedule).homes
