"""What all ranks agree on: who has which parameters, and what cannot be run."""

from dataclasses import replace

import pytest
import torch

from loops import each
from penstock.arch.cell_shape import CellShape
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
    assert {name for name, _ in found} == set(layout.names) - set(layout.on_shards)
    shards = range(layout.stages, schedule.shape.homes)
    found += [item for shard in shards for item in layout.parameters(shard).parts.items()]
    assert {name: part.shape for name, part in found} == expected_shapes(layout.model)
    assert [stage for stage, home in enumerate(layout.homes) if home is not None] == stages
    assert set(layout.homes) - {None} == set(range(schedule.shape.devices))
    held = [s for d in range(layout.devices) for s in layout.stages_of(d)]
    assert [s for s in held if s not in shards] == sorted(
        stages, key=lambda stage: (layout.homes[stage], stage)
    )
    assert [s for s in held if s in shards] == [*shards]


def test_a_model_that_is_only_estimated_is_refused() -> None:
    with pytest.raises(ShapeError, match="can be estimated, but not run"):
        _layout(build("1f1b", devices=2, microbatches=2), replace(MODEL, gated=False))


@pytest.mark.parametrize("tied", [False, True])
def test_shards_have_all_words_once_and_the_same_ones_of_both_layers(tied: bool) -> None:
    """31 words are dealt to 3 devices of 2 ranks each."""
    model = replace(MODEL, vocabulary=31, tied=tied)
    schedule = build("vocab-1f1b", devices=3, microbatches=3)
    layout = Layout.of(model, schedule, 4, cell=CellShape(tensor=2))
    words: list[int] = []
    for device in range(3):
        for tensor in range(2):
            found = layout.parameters(layout.stages_of(device)[-1], tensor)
            embedding, head = found.parts[EMBEDDING], found.parts[HEAD]
            assert (embedding.start, embedding.end) == (head.start, head.end)
            assert embedding.holders == range(tensor, tensor + 1)
            assert found.stored == embedding.elements * (1 if tied else 2)
            words += range(embedding.start, embedding.end)
    assert words == list(range(31))
    assert layout.ties == (((3, 3), (4, 4), (5, 5)) if tied else ())


def test_one_end_of_a_tied_weight_on_shards_is_refused() -> None:
    shape = Shape(1, 1, (1,), embed="E")
    lane = [("E", 0, 0, 0), ("F", 0, 0, 0), ("B", 0, 0, 0), ("D", 0, 0, 0)]
    schedule = Schedule.of("half", shape, [lane])
    with pytest.raises(ShapeError, match="the weight that it is tied to is not"):
        _layout(schedule, replace(MODEL, tied=True))
    assert HEAD in _layout(schedule).parameters(0).parts


def test_a_plan_with_the_vocabulary_elsewhere_is_refused() -> None:
    layout = _layout(build("1f1b", devices=2, microbatches=4))
    with pytest.raises(ShapeError, match="has the vocabulary on all devices"):
        StepPlan(layout, build("vocab-1f1b", devices=2, microbatches=4), ((4,),) * 4)


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
