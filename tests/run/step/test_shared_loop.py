"""Stages with several tensors between them, tied weights, replicas: all equal to one process."""

import pytest
import torch

import penstock
from penstock.run.launch.worker_pool import Crew
from run import shared_loop_jobs as jobs

pytestmark = pytest.mark.torch

PAIR = {
    "interleaved": penstock.build("interleaved", devices=2, microbatches=4, chunks=2),
    "zb-v": penstock.build("zb-v", devices=2, microbatches=4),
}
FOUR = penstock.build("1f1b", devices=4, microbatches=4)
SPLIT = penstock.build("zb-h1", devices=4, microbatches=4)


def same(found: jobs.Named, expected: jobs.Named) -> None:
    assert found.keys() <= expected.keys()
    for key, value in found.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-9, atol=1e-12, msg=key)


@pytest.mark.parametrize("schedule", [FOUR, SPLIT], ids=["1f1b", "zb-h1"])
def test_several_tensors_move_and_tied_weights_learn_together(
    ranks: Crew, schedule: penstock.Schedule
) -> None:
    losses, weights, norm = jobs.one_process(4, 1, steps=3)
    weights["3.weight"] = weights["0.embedding.weight"]
    for found, own, clipped in ranks.run(jobs.train, schedule, 1, 3):
        assert found == pytest.approx(losses, rel=1e-11)
        assert clipped == pytest.approx(norm, rel=1e-9)
        same(own, weights)


@pytest.mark.parametrize("name", PAIR)
def test_replicas_train_as_one_process_with_all_batches(ranks: Crew, name: str) -> None:
    losses, weights, norm = jobs.one_process(4, 2, steps=3)
    weights["3.weight"] = weights["0.embedding.weight"]
    for found, own, clipped in ranks.run(jobs.train, PAIR[name], 2, 3):
        assert found == pytest.approx(losses, rel=1e-11)
        assert clipped == pytest.approx(norm, rel=1e-9)
        same(own, weights)


@pytest.mark.parametrize(("replicas", "schedule"), [(1, FOUR), (2, PAIR["interleaved"])])
def test_steps_without_an_update_between_add_up_once(
    ranks: Crew, replicas: int, schedule: penstock.Schedule
) -> None:
    expected = jobs.one_accumulated()
    expected["3.weight"] = expected["0.embedding.weight"]
    for found in ranks.run(jobs.accumulated, schedule, replicas):
        same(found, expected)


def test_tied_weights_that_ranks_make_by_themselves_begin_and_stay_equal(ranks: Crew) -> None:
    parts = ranks.run(jobs.made_one_by_one, FOUR)
    assert torch.equal(parts[0]["0.embedding.weight"], parts[3]["3.weight"])


@pytest.mark.parametrize(("replicas", "schedule"), [(1, SPLIT), (2, PAIR["zb-v"])])
def test_a_pipeline_verifies_itself(
    ranks: Crew, replicas: int, schedule: penstock.Schedule
) -> None:
    for verdict in ranks.run(jobs.verified, schedule, replicas):
        assert verdict.equal
        assert verdict.difference.gradient < 1e-12
        assert "equal to one process" in str(verdict)


def test_a_wrong_number_is_found_and_named(ranks: Crew) -> None:
    for verdict in ranks.run(jobs.verified_with_a_mistake, FOUR):
        assert not verdict.equal
        assert "NOT equal" in str(verdict)
        assert "differs by" in str(verdict)
