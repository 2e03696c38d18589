"""Gradients of replicas are summed as soon as a stage is done; tied weights get both ends' sum."""

from itertools import pairwise

import pytest
import torch
from penstock.run.step.reduction import last_gradient_rows, tie

from model.samples import random_weights
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.run.comm.mesh import Mesh
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build, registry
from penstock.verify.cases import smallest
from run.jobs import reduced
from run.plans import plan_of

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", list(registry()))
def test_after_the_last_gradient_of_a_stage_nothing_adds_to_it(name: str) -> None:
    spec = registry()[name]
    schedule = spec.build(smallest(spec))
    table = schedule.table
    rows = last_gradient_rows(schedule, dict.fromkeys(range(schedule.shape.stages)))  # type: ignore[arg-type]
    assert sorted(rows.values()) == list(range(schedule.shape.stages))
    for row, stage in rows.items():
        assert table.op(row).stage == stage
        assert table.op(row).kind in "BW"
        own = [i for i, op in enumerate(table.ops()) if op.stage == stage and op.kind in "BW"]
        assert max(own) == row


@pytest.mark.parametrize(
    "schedule",
    [
        build("interleaved", devices=2, microbatches=2, chunks=2),
        build("zb-v", devices=2, microbatches=4),
    ],
    ids=["whole", "split"],
)
def test_a_sum_begins_right_after_its_stage_and_changes_no_bit(
    ranks: Crew, schedule: object
) -> None:
    for said, ops, same in ranks.run(reduced, plan_of(schedule, dtype=torch.float32)):  # type: ignore[arg-type]
        begun = [before for before, after in pairwise(said) if after == "sum"]
        assert sorted(begun) == sorted(ops)
        assert len(begun) == 2
        assert said.index("sum") < len(said) - 2  # other ops follow the first sum
        assert same


def test_embedding_and_head_of_one_device_both_get_the_sum() -> None:
    weights = random_weights({EMBEDDING: (5, 3), HEAD: (5, 3), "other.weight": (2, 2)})
    weights.grad.normal_()
    before = {name: grad.clone() for name, grad in weights.named(weights.grad).items()}
    tie(Mesh(1, 1, 0), {0: weights})
    after = weights.named(weights.grad)
    total = before[EMBEDDING] + before[HEAD]
    assert torch.equal(after[EMBEDDING], total)
    assert torch.equal(after[HEAD], total)
    assert torch.equal(after["other.weight"], before["other.weight"])


def test_a_device_between_the_ends_does_nothing() -> None:
    weights = random_weights({"other.weight": (2, 2)})
    weights.grad.fill_(3.0)
    tie(Mesh(1, 4, 1), {1: weights})
    assert weights.grad.tolist() == [3.0] * 4
