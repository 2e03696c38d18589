"""Own modules in an own loop train as one process does; what modules cannot do is refused."""

import re
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import penstock
from loops import one_of
from penstock.run.launch.worker_pool import Crew
from penstock.transform import recompute_all
from run import own_loop_jobs as jobs

pytestmark = pytest.mark.torch

SCHEDULES = {
    "gpipe": penstock.build("gpipe", devices=2, microbatches=4),
    "1f1b": penstock.build("1f1b", devices=2, microbatches=4),
    "interleaved": penstock.build("interleaved", devices=2, microbatches=4, chunks=2),
    "zb-h1": penstock.build("zb-h1", devices=2, microbatches=4),
    "recomputed": recompute_all(penstock.build("1f1b", devices=2, microbatches=4)),
}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(2) as members:
        yield members


@pytest.mark.parametrize("name", one_of(3, ((name,) for name in SCHEDULES)))
def test_an_own_loop_over_two_ranks_equals_one_process(crew: Crew, name: str) -> None:
    schedule = SCHEDULES[name]
    losses, weights = jobs.one_process(schedule.shape.stages, 4, steps=3)
    parts = crew.run(jobs.train, schedule, 3)
    assert parts[0][0] == parts[1][0] == pytest.approx(losses, rel=1e-12)
    found = parts[0][1] | parts[1][1]
    assert found.keys() == weights.keys()
    moving = {key for key in weights if "running" in key or "num_batches" in key}
    compared = weights.keys() - (moving if name == "recomputed" else set())
    for key in compared:
        torch.testing.assert_close(found[key], weights[key], rtol=1e-9, atol=1e-12, msg=key)


def test_a_pipeline_of_one_device_needs_no_ranks() -> None:
    losses, weights = jobs.one_process(1, 4, steps=2)
    found = jobs.train(None, penstock.build("1f1b", devices=1, microbatches=4), 2)
    assert found[0] == pytest.approx(losses, rel=1e-12)
    for key, value in found[1].items():
        torch.testing.assert_close(value, weights[key], rtol=1e-9, atol=1e-12, msg=key)


def test_an_evaluation_leaves_no_gradients(crew: Crew) -> None:
    model = nn.Sequential(*(jobs.module(stage, 2) for stage in range(2))).eval()
    inputs, targets = jobs.batch(0)
    expected = jobs.mean_loss(model(inputs), targets).item()
    for loss, left in crew.run(jobs.evaluate, SCHEDULES["1f1b"]):
        assert loss == pytest.approx(expected, rel=1e-12)
        assert not left


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (jobs.a_number, "stage 1 gives a int inside of its tuple instead of a tensor"),
        (jobs.a_wrong_size, "stage 1 raised RuntimeError: mat1 and mat2"),
        (jobs.another_type, r"stage 1 raised RuntimeError: .* it was given \[2, 5, 5\] of float64"),
        (jobs.changed_in_place, "stage 1 changes its input in place"),
        (jobs.whole_numbers, "stage 1 gives a tensor of torch.int64"),
        (jobs.a_detached_input, "stage 1 gives an output that does not depend on its input"),
        (jobs.weights_without_gradient, "stage 1 got no gradient for any of its 1 trained param"),
        (jobs.other_words_on_each_rank, "devices 1 of replica 0 have a batch of the same size"),
        (jobs.three_parts, "a batch of 3 parts, but it has two: inputs and targets"),
        (jobs.nothing_that_counts, "nothing counts in the whole batch"),
        (jobs.no_microbatches, "1f1b needs a number of microbatches"),
        (jobs.three_modules_for_two_devices, "3 modules cannot be dealt to 2 devices"),
        (jobs.an_unknown_tie, "stage 1 has no parameter 'nope.weight'"),
        (
            jobs.a_tie_of_other_sizes,
            r"1.1.weight is tied to 0.0.weight, but is \[11, 6\] of float64",
        ),
        (jobs.three_replicas_of_two_ranks, "2 ranks cannot be 3 replicas of a pipeline"),
        (jobs.a_loss_of_many_numbers, r"stage 1 has a loss of the size \[2, 5\] instead of one"),
        (jobs.another_batch, "ranks 1 have another batch than rank 0"),
        (jobs.another_schedule, "ranks 1 have another schedule than rank 0"),
        (jobs.an_uneven_batch, "a batch of 7 inputs and 7 targets cannot be cut into 4 micro"),
        (jobs.too_few_ranks, "need 3 ranks, but 2 were started"),
    ],
)
def test_a_mistake_is_named_on_every_rank(
    crew: Crew, mistake: Callable[[], object], words: str
) -> None:
    for refusal in crew.run(jobs.refused, mistake):
        assert re.search(words, refusal)
        assert "hint: " in refusal


def build(name: str, **sizes: int) -> penstock.Schedule:
    return penstock.build(name, devices=1, microbatches=2, **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedule", "modules", "words"),
    [
        (build("seq1f1b", slices=2), 1, "a Identity takes whole sequences: a plain module"),
        (build("vocab-1f1b"), 1, "ops of kind D, E, S, T, which a plain module has no work for"),
        (build("1f1b"), 2, "2 modules for the 1 stages of 1f1b"),
    ],
)
def test_what_a_plain_module_cannot_do_is_refused_before_anything_is_made(
    schedule: penstock.Schedule, modules: int, words: str
) -> None:
    stages = [nn.Identity() for _ in range(modules)]
    with pytest.raises(penstock.ShapeError, match=words) as refusal:
        penstock.run.ModulePipeline(schedule, stages, jobs.mean_loss)
    assert refusal.value.hint


@pytest.mark.parametrize(
    "schedule",
    [
        penstock.build("slimpipe-exchange", devices=4, microbatches=4, slices=8),
        penstock.build("sppo-msp", devices=2, microbatches=2, slices=4),
    ],
    ids=["loans", "gangs"],
)
def test_attention_that_devices_share_is_refused(schedule: penstock.Schedule) -> None:
    with pytest.raises(penstock.ShapeError, match="attention that several devices compute"):
        penstock.run.ModulePipeline(schedule, lambda stage: nn.Identity(), jobs.mean_loss)


def test_a_stage_without_a_device_is_refused() -> None:
    schedule = penstock.build("helixpipe", devices=2, microbatches=4)
    with pytest.raises(penstock.ShapeError, match="stages without weights"):
        penstock.run.ModulePipeline(schedule, lambda stage: nn.Identity(), jobs.mean_loss)
