"""What all ranks agree on: who has which parameters, and what cannot be run."""

from dataclasses import replace

import pytest
import torch

from loops import each
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import EMBEDDING, HEAD, LAST_NORM, expected_shapes
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build, registry
from penstock.verify.cases import smallest

pytestmark = pytest.mark.torch

MODEL = ModelConfig(8, 8, 16, 2, 1, 4, 30)


def _layout(schedule: Schedule, model: ModelConfig = MODEL, layers: tuple[int, ...] = ()) -> Layout:
    return Layout.of(model, schedule, 4 * max(schedule.shape.slices), layers=layers)


@each("name", list(registry()))
def test_every_parameter_is_on_one_stage_and_every_stage_on_one_device(name: str) -> None:
    spec = registry()[name]
    schedule = spec.build(smallest(spec))
    weightless = schedule.shape.weightless
    layers = len(weightless) or sum(schedule.shape.layers) or schedule.shape.stages + 1
    layout = _layout(schedule, replace(MODEL, layers=layers))
    stages = [stage for stage in range(schedule.shape.stages) if stage not in weightless]
    found = [item for stage in stages for item in layout.parameters(stage).parts.items()]
    assert len(found) == len(dict(found))
    assert {name: part.shape for name, part in found} == expected_shapes(layout.model)
    assert [stage for stage, home in enumerate(layout.homes) if home is not None] == stages
    assert set(layout.homes) - {None} == set(range(schedule.shape.devices))
    assert [s for d in range(layout.devices) for s in layout.stages_of(d)] == sorted(
        stages, key=lambda stage: (layout.homes[stage], stage)
    )


def test_the_last_stage_has_a_head_of_its_own_even_where_it_is_tied() -> None:
    layout = _layout(build("1f1b", devices=4, microbatches=4), replace(MODEL, tied=True))
    assert EMBEDDING in layout.parameters(0).parts
    assert {HEAD, LAST_NORM} <= layout.parameters(3).parts.keys()
    assert HEAD not in layout.names
    assert list(layout.names.values()) == list(range(len(layout.names)))


def test_layers_are_spread_as_they_are_given() -> None:
    layout = _layout(build("1f1b", devices=3, microbatches=3), layers=(5, 0, 3))
    assert layout.split == (range(5), range(5, 5), range(5, 8))
    assert layout.parameters(1).parts == {}


def test_a_schedule_that_is_made_for_a_cut_has_it() -> None:
    made_for = build("1f1b-redis", devices=2, microbatches=2, options={"layers": 4})
    assert _layout(made_for).split == (range(5), range(5, 8))
    assert _layout(made_for, layers=(4, 4)).split == (range(4), range(4, 8))


def test_weights_are_kept_in_32_bits_at_least() -> None:
    layout = _layout(build("1f1b", devices=2, microbatches=2))
    types = (torch.bfloat16, torch.float32, torch.float64)
    mains = [replace(layout, dtype=dtype).main for dtype in types]
    assert mains == [torch.float32, torch.float32, torch.float64]


def test_other_slices_than_the_schedule_has_are_refused() -> None:
    schedule = build("seq1f1b", devices=2, microbatches=2, slices=2)
    with pytest.raises(ShapeError, match=r"cut into \(2, 3\) slices, but seq1f1b has \(2, 2\)"):
        StepPlan(_layout(schedule), schedule, ((4, 4), (4, 2, 2)))


def test_a_longer_sequence_than_the_layout_has_room_for_is_refused() -> None:
    schedule = build("1f1b", devices=2, microbatches=2)
    with pytest.raises(ShapeError, match="a sequence has 5 tokens, but the run was planned for 4"):
        StepPlan(_layout(schedule), schedule, ((4,), (5,)))


def test_plans_that_run_the_same_way_have_one_signature() -> None:
    schedule = build("1f1b", devices=2, microbatches=2)
    layout = _layout(schedule)
    plan = StepPlan(layout, schedule, ((4,), (3,)))
    same = StepPlan(layout, schedule.renamed("other"), ((4,), (3,)))
    others = [
        StepPlan(layout, schedule, ((3,), (4,))),
        StepPlan(layout, schedule, ((4,), (3,)), rows=2),
        StepPlan(layout, build("gpipe", devices=2, microbatches=2), ((4,), (3,))),
    ]
    assert plan.signature == same.signature
    assert len({plan.signature, *(other.signature for other in others)}) == 4


def test_a_stage_with_two_homes_is_refused() -> None:
    lanes = [
        [("F", 0, 0, 0), ("F", 1, 1, 0), ("B", 1, 1, 0), ("B", 0, 0, 0)],
        [("F", 0, 1, 0), ("F", 1, 0, 0), ("B", 1, 0, 0), ("B", 0, 1, 0)],
    ]
    schedule = Schedule.of("copies", Shape(2, 2, (1, 1)), lanes)
    with pytest.raises(ShapeError, match="stage 0 of copies is on devices 0, 1"):
        _layout(schedule)
