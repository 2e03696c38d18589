"""Predictions beside measurements: what a look at a step says of its schedule."""

from fractions import Fraction

import pytest
import torch

from penstock.cost.workload import Workload
from penstock.plan.memory import step_peaks
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.observe.inspected_step import StepLook, look_at_step
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.schedules import build
from penstock.sim import simulate
from penstock.train.report.report import _unsliced, compare_step
from run.jobs import CPU, batch_of
from run.plans import plan_of

pytestmark = pytest.mark.torch

PLAN = plan_of(build("seq1f1b", devices=2, microbatches=3, slices=2))


def _seen(plan: StepPlan) -> StepLook:
    """A step in which a forward took 1 ms and a backward 2."""
    seconds = [{"F": 1e-3, "B": 2e-3}[op.kind] for op in plan.schedule.table.ops()]
    return StepLook(simulate(plan.schedule), seconds)


def test_a_prediction_is_the_simulation_of_the_times_that_ops_took() -> None:
    found = compare_step(PLAN, _seen(PLAN), 2)
    assert found.name == "seq1f1b"
    assert found.predicted.makespan == simulate(PLAN.schedule).makespan * 2 * Fraction(1, 1000)
    assert found.measured is not found.predicted


def test_fewer_cores_than_devices_are_a_prediction_of_their_own() -> None:
    found = compare_step(PLAN, _seen(PLAN), 1)
    assert found.shared == sum(found.predicted.work)
    assert compare_step(PLAN, _seen(PLAN), 2).shared is None


def test_memory_is_predicted_from_the_plan() -> None:
    workload = Workload(PLAN.layout.model, PLAN.lengths, (2, 2))
    assert list(compare_step(PLAN, _seen(PLAN), 2).peaks) == step_peaks(PLAN.schedule, workload)


def test_a_schedule_to_compare_with_has_the_same_sequences_in_one_piece() -> None:
    other = _unsliced(PLAN, build("1f1b", devices=2, microbatches=3))
    assert other.lengths == ((24,),) * 3
    assert other.rows == PLAN.rows
    assert (other.layout.model, other.layout.dtype) == (PLAN.layout.model, PLAN.layout.dtype)


def test_one_device_is_predicted_to_need_what_its_ops_needed() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2), dtype=torch.float32)
    engine = Engine(plan, Mesh(Grid()), Alone(), adam=AdamW(), device=CPU)
    begin(engine, 1)
    seen = look_at_step(engine, batch_of(plan))
    assert seen is not None
    found = compare_step(plan, seen, 1)
    assert float(found.predicted.makespan) == pytest.approx(sum(seen.seconds), rel=1e-3)
    assert found.measured.makespan > 0
