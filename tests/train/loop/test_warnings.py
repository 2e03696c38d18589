"""Warnings to begin with: stages without layers, and less held-out data than asked for."""

import numpy as np
import pytest
import torch

from data.corpora import corpus_of, numbered
from penstock.core.schedule import Schedule
from penstock.data.samples import Once, Samples
from penstock.run.policies.memory_room import MemoryRoom
from penstock.schedules import build
from penstock.train.loop.warnings import cautions, evaluation_batches, slow_type, tight_memory
from run.plans import plan_of
from train.samples import short

pytestmark = pytest.mark.torch

BATCH = ("batch.microbatches=2", "mesh.replicas=2")
"""Global batches of 2 x 2 samples."""
HELD_OUT = "data.held_out=0.1"
EVALUATED = short(*BATCH, HELD_OUT, "evaluation.every=1", "evaluation.batches=3")


def _piped(stages: int) -> Schedule:
    return build("gpipe", devices=stages, microbatches=2)


def _held_out(samples: int) -> Once:
    return Once.of(Samples(corpus_of(numbered([4 * samples])), np.arange(1), 4, 0))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((2, 2, 2), ""),
        ((1, 1, 1, 1, 0, 0), "stages 4, 5 of 6 have no layers: the model has 4"),
        ((1, 1, 0), "stage 2 of 3 has no layers: the model has 2"),
    ],
)
def test_stages_without_layers_are_named(layers: tuple[int, ...], said: str) -> None:
    found = cautions(short(), _piped(len(layers)), layers, None)
    assert [said in line and line.startswith("warning: ") for line in found] == [True] * bool(said)


def test_pairs_that_have_no_communication_to_hide_are_said() -> None:
    braided = build("dualpipev", devices=2, microbatches=4)
    (said,) = cautions(short(), braided, (1,) * 4, None)
    assert said.startswith("warning: dualpipev braids 6 pairs of ops to hide communication")
    assert cautions(short("mesh.tensor=2"), braided, (1,) * 4, None) == []
    assert cautions(short(), _piped(4), (1,) * 4, None) == []


def test_a_type_that_a_gpu_is_slow_with_is_said() -> None:
    (said,) = slow_type("float32", "cuda")
    assert said.startswith("warning: run.dtype is float32, which a GPU computes many times slower")
    assert slow_type("bfloat16", "cuda") == slow_type("float32", "cpu") == []


def test_who_has_given_a_stage_no_layers_is_not_told() -> None:
    assert cautions(short("pipeline.layers=[0, 4]"), _piped(2), (0, 4), None) == []
    made_for = build("1f1b-redis", devices=2, microbatches=2, options={"layers": 2, "head": 4})
    assert made_for.shape.layers == (4, 0)
    assert cautions(short(), made_for, (4, 0), None) == []


@pytest.mark.parametrize(
    ("samples", "batches"), [(1, 1), (4, 1), (5, 2), (11, 3), (12, 3), (99, 3)]
)
def test_an_evaluation_has_the_batches_in_which_something_is_held_out(
    samples: int, batches: int
) -> None:
    assert evaluation_batches(EVALUATED, _held_out(samples)) == batches


def test_an_evaluation_of_fewer_samples_than_asked_for_is_told_with_both_numbers() -> None:
    (said,) = cautions(EVALUATED, _piped(2), (2, 2), _held_out(11))
    assert "evaluation.batches is 3, which are 12 samples, but only 11 are held out" in said
    assert cautions(EVALUATED, _piped(2), (2, 2), _held_out(12)) == []
    assert cautions(short(*BATCH, HELD_OUT), _piped(2), (2, 2), _held_out(1)) == []


def test_a_device_without_room_for_a_step_is_named_with_what_it_needs() -> None:
    """What a step needs is what the room is when it is just enough."""
    plan = plan_of(_piped(2))
    lacks = MemoryRoom((0, 0), torch.device("cpu")).missing(plan)
    assert tight_memory(MemoryRoom([*lacks.values()], torch.device("cpu")), plan) == []
    room = MemoryRoom((lacks[0], lacks[1] - 1), torch.device("cpu"))
    assert room.missing(plan) == {1: 1}
    assert not room.fits(plan)
    (said,) = tight_memory(room, plan)
    assert said.startswith("warning: a step is predicted to need ")
    assert f"{lacks[1] / 1e9:.2f} GB on device 1, in addition to weights and optimizer" in said
