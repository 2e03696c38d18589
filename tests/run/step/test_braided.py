"""Braided pairs over cells: two strands take turns at their sums, and change no bit."""

from dataclasses import replace

import pytest

from penstock.arch.cell_shape import CellShape
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from run.braid_jobs import braided_step
from run.plans import in_cells, plan_of

pytestmark = [pytest.mark.torch, pytest.mark.processes]


def _plan(name: str, cell: CellShape) -> StepPlan:
    return in_cells(plan_of(build(name, devices=2, microbatches=6)), cell)


def _one_by_one(plan: StepPlan) -> StepPlan:
    return replace(plan, schedule=replace(plan.schedule, pairs=(), derived={}))


@pytest.mark.parametrize("cell", [CellShape(tensor=2), CellShape(ulysses=2), CellShape(ring=2)])
@pytest.mark.parametrize("name", ["stp", "dualpipev"])
def test_pairs_have_the_bits_of_one_op_after_the_other(
    ranks: Crew, name: str, cell: CellShape
) -> None:
    plan = _plan(name, cell)
    assert plan.schedule.pairs
    in_turn = ranks.run(braided_step, plan)
    one_by_one = ranks.run(braided_step, _one_by_one(plan))
    for braided, plain in zip(in_turn, one_by_one):
        assert braided.loss == plain.loss
        assert braided.gradients.keys() == plain.gradients.keys()
        assert all(grad.equal(plain.gradients[s]) for s, grad in braided.gradients.items())


@pytest.mark.parametrize("name", ["stp", "dualpipev"])
def test_while_one_strand_waits_for_a_sum_the_other_starts_its_own(ranks: Crew, name: str) -> None:
    """One by one a rank has fewer collectives under way: only those that an op starts early."""
    plan = _plan(name, CellShape(tensor=2))
    in_turn = [step.under_way for step in ranks.run(braided_step, plan)]
    one_by_one = [step.under_way for step in ranks.run(braided_step, _one_by_one(plan))]
    assert min(in_turn) > max(one_by_one)
