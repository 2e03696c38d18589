"""FlexSP, section 9.7: gradients of groups of unequal sizes equal those of one process."""

import random

import pytest

from penstock.arch.cell_shape import CellShape
from penstock.run.launch.worker_pool import Crew
from penstock.verify.compare import TOLERANCE, difference
from verify.group_jobs import GroupCase, gradients_in_groups, groups_made, random_groups
from verify.unequal_jobs import parts_of_batch, right_answer

pytestmark = pytest.mark.torch

BATCHES = 8
"""Random batches on each mesh."""
FOUR, TWO = CellShape(ulysses=4), CellShape(ulysses=2)
MESHES = {
    "4 ranks": ("1f1b", 1, FOUR, "none"),
    "4 ranks that share the optimizer": ("1f1b", 1, FOUR, "optimizer"),
    "4 ranks that share weights": ("1f1b", 1, FOUR, "full"),
    "2 devices of 2 ranks": ("1f1b", 2, TWO, "none"),
    "2 devices of 2 ranks, split backwards": ("zb-h1", 2, TWO, "none"),
    "2 devices of 2 ranks that share weights, interleaved": ("interleaved", 2, TWO, "full"),
    "2 tensor ranks by 2": ("1f1b", 1, CellShape(tensor=2, ulysses=2), "none"),
}


@pytest.mark.parametrize("mesh", MESHES)
def test_section_9_7_gradients_equal_those_of_one_process(ranks: Crew, mesh: str) -> None:
    numbers = random.Random(mesh)
    schedule, devices, cell, shard = MESHES[mesh]
    batches = tuple(random_groups(numbers, cell.ulysses) for _ in range(BATCHES))
    reports = ranks.run(gradients_in_groups, GroupCase(batches, schedule, devices, cell, shard))
    for number, (batch, groups) in enumerate(batches):
        parts = parts_of_batch(reports, number)
        held = [gradient for part in parts for gradient in part.held]
        found = difference(parts[0].loss, held, right_answer(batch))
        assert found.beyond(TOLERANCE["cpu"]["float64"]) == [], (batch, groups)


def test_section_9_7_another_plan_makes_no_group_again(ranks: Crew) -> None:
    numbers = random.Random(7)
    batches = tuple(random_groups(numbers, 4) for _ in range(4))
    made = ranks.run(groups_made, GroupCase(batches, "1f1b", 1, FOUR))
    assert [before == after for before, after in made] == [True] * 4
