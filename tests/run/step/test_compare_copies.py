"""Ranks that hold the same weights find out when one of them has others."""

import pytest

from penstock.arch.cell_shape import CellShape
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from run.copy_jobs import compare_copies, compare_shards
from run.plans import in_cells, plan_of

pytestmark = [pytest.mark.torch, pytest.mark.processes]

NORM = "model.layers.1.input_layernorm.weight"
MATRIX = "model.layers.1.mlp.up_proj.weight"


def _plan(tensor: int) -> StepPlan:
    return in_cells(plan_of(build("gpipe", devices=1, microbatches=1)), CellShape(tensor=tensor))


def test_equal_copies_are_taken(ranks: Crew) -> None:
    assert ranks.run(compare_copies, _plan(2), 2, "", 0) == [""] * 4


def test_a_replica_with_another_number_is_named_on_all_copies(ranks: Crew) -> None:
    said = ranks.run(compare_copies, _plan(2), 2, MATRIX, 3)
    assert (said[0], said[2]) == ("", "")
    assert said[1] == said[3]
    assert f"{MATRIX} of rank 3 is not what rank 1 has" in said[1]


def test_what_all_tensor_ranks_hold_is_compared_among_them(ranks: Crew) -> None:
    said = ranks.run(compare_copies, _plan(4), 1, NORM, 2)
    assert len({*said}) == 1
    assert f"{NORM} of rank 2 is not what rank 0 has" in said[0]


def test_ranges_that_groups_share_are_compared_among_groups(ranks: Crew) -> None:
    """Four replicas, two of which share a stage: ranks 1 and 3 have the same half of it."""
    assert ranks.run(compare_shards, _plan(1), 4, 2, -1) == [""] * 4
    said = ranks.run(compare_shards, _plan(1), 4, 2, 3)
    assert (said[0], said[2]) == ("", "")
    assert said[1] == said[3]
    assert " of rank 3 is not what rank 1 has" in said[1]


def test_ranges_of_which_no_other_rank_has_a_copy_cannot_be_compared(ranks: Crew) -> None:
    assert ranks.run(compare_shards, _plan(1), 4, 4, 3) == [""] * 4
