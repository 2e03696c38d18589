"""FlexSP, section 9.7: gradients of groups of unequal sizes equal those of one process."""

import random

import pytest

from loops import one_of
from penstock.arch.cell_shape import CellShape
from penstock.run.launch.worker_pool import Crew
from penstock.verify.compare import TOLERANCE, difference
from verify.group_jobs import (
    GroupCase,
    GroupMesh,
    gradients_in_groups,
    groups_made,
    random_groups,
)
from verify.unequal_jobs import parts_of_batch, right_answer

pytestmark = pytest.mark.torch

BATCHES = 6
"""Random batches on each mesh."""
TWO, RING = CellShape(ulysses=2), CellShape(ulysses=2, ring=2)
MESHES = {
    "2 replicas of 2 ranks that share weights": GroupMesh(cell=TWO, replicas=2, shard="full"),
    "4 ranks that share the optimizer": GroupMesh(shard="optimizer"),
    "4 ranks that share weights": GroupMesh(shard="full"),
    "2 devices of 2 ranks": GroupMesh(devices=2, cell=TWO),
    "2 devices of 2 ranks, split backwards": GroupMesh("zb-h1", 2, TWO),
    "4 ranks": GroupMesh(),
    "2 devices of 2 ranks that share weights, interleaved": GroupMesh(
        "interleaved", 2, TWO, "full"
    ),
    "2 tensor ranks by 2": GroupMesh(cell=CellShape(tensor=2, ulysses=2)),
    "2 replicas of 2 ranks": GroupMesh(cell=TWO, replicas=2),
    "2 replicas of 2 ranks that share the optimizer": GroupMesh(
        cell=TWO, replicas=2, shard="optimizer"
    ),
    "2 devices of 2 ranks, slices": GroupMesh("seq1f1b", 2, TWO, slices=3),
    "2 replicas of 2 ranks, slices": GroupMesh("seq1f1b", 1, TWO, replicas=2, slices=2),
    "rings of 2 by 2": GroupMesh(cell=RING),
    "4 ranks that share weights, slices": GroupMesh("terapipe", shard="full", slices=4),
    "2 tensor ranks by 2, slices": GroupMesh(
        "seq1f1b", 1, CellShape(tensor=2, ulysses=2), slices=2
    ),
    "rings of 2 by 2, slices": GroupMesh("seq1f1b", 1, RING, slices=3),
}


@pytest.mark.parametrize("name", one_of(16, ((name,) for name in MESHES)))
def test_section_9_7_gradients_equal_those_of_one_process(ranks: Crew, name: str) -> None:
    numbers, mesh = random.Random(name), MESHES[name]
    batches = tuple(random_groups(numbers, mesh) for _ in range(BATCHES))
    reports = ranks.run(gradients_in_groups, GroupCase(batches, mesh))
    for number, (batch, groups) in enumerate(batches):
        parts = parts_of_batch(reports, number)
        held = [gradient for part in parts for gradient in part.held]
        found = difference(parts[0].loss, held, right_answer(batch))
        assert found.beyond(TOLERANCE["cpu"]["float64"]) == [], (batch, groups)


def test_section_9_7_another_plan_makes_no_group_again(ranks: Crew) -> None:
    numbers, mesh = random.Random(7), GroupMesh()
    batches = tuple(random_groups(numbers, mesh) for _ in range(4))
    made = ranks.run(groups_made, GroupCase(batches, mesh))
    assert [before == after for before, after in made] == [True] * 4
