"""What is on the host is not on the device: peaks fall as predicted, and no bit changes."""

from dataclasses import replace
from fractions import Fraction
from time import sleep
from typing import Any
from unittest import mock

import pytest
import torch

from loops import one_of
from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.cost.workload import Workload
from penstock.plan.host_memory import host_peaks
from penstock.plan.memory import footprints, step_peaks
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.host.moved import MovedActivation
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import begin
from penstock.schedules import build
from penstock.transform.offload import offload_stages
from run.jobs import CPU, batch_of, trained
from run.lone_rank import lone_peak
from run.offload_jobs import as_on_a_gpu, gradients_of
from run.peak_jobs import peak_of
from run.plans import plan_of

pytestmark = [pytest.mark.torch, pytest.mark.long]

CLOSE = 0.02


def _plan(schedule: Schedule, length: int) -> StepPlan:
    model = ModelConfig(2 * schedule.shape.stages, 128, 384, 4, 1, 32, 256)
    return plan_of(schedule, model, torch.float32, length=length)


def _built(name: str, length: int = 256, **request: Any) -> StepPlan:
    return _plan(build(name, **request), length)


PLANS = {
    "po-h": lambda: _built("po-h", devices=4, microbatches=8, chunks=2),
    "po-f": lambda: _built("po-f", devices=4, microbatches=8, chunks=2),
    "sppo": lambda: _built("sppo", 4096, devices=2, microbatches=1, slices=8),
    "sppo, a quarter": lambda: _built(
        "sppo", 4096, devices=2, microbatches=1, slices=8, options={"ratios": "1/4"}
    ),
    "stp-offload, half": lambda: _built(
        "stp-offload", devices=2, microbatches=9, options={"share": "1/2"}
    ),
}


def _workload(plan: StepPlan) -> Workload:
    return Workload(plan.layout.model, plan.lengths, tuple(map(len, plan.layout.split)))


@pytest.mark.parametrize("name", one_of(3, ((name,) for name in PLANS)))
def test_every_device_holds_what_is_predicted_within_a_fiftieth(name: str) -> None:
    plan = PLANS[name]()
    predicted = step_peaks(plan.schedule, _workload(plan))
    with as_on_a_gpu():
        measured = [lone_peak(plan, rank) for rank in range(plan.layout.devices)]
    assert predicted == [pytest.approx(peak, rel=CLOSE) for peak in measured]
    at_once = [lone_peak(plan, rank) for rank in range(plan.layout.devices)]
    assert all(peak <= 1.001 * most for peak, most in zip(at_once, measured))


def _without_copies(schedule: Schedule) -> Schedule:
    """The same order of compute ops, with everything kept on the device."""
    lanes = [schedule.lane(device) for device in range(schedule.shape.devices)]
    plain = Schedule.of(schedule.name, schedule.shape, lanes)
    return replace(plain, pairs=schedule.pairs, derived={})


@pytest.mark.parametrize("name", one_of(3, ((name,) for name in PLANS)))
def test_the_peak_falls_by_what_is_predicted(name: str) -> None:
    plan = PLANS[name]()
    kept = replace(plan, schedule=_without_copies(plan.schedule))
    saved = (
        step_peaks(kept.schedule, _workload(plan))[0]
        - step_peaks(plan.schedule, _workload(plan))[0]
    )
    with as_on_a_gpu():
        measured = lone_peak(kept, 0) - lone_peak(plan, 0)
    assert measured > 0.1 * lone_peak(kept, 0)
    assert measured == pytest.approx(saved, rel=0.05)


EIGHT = ModelConfig(8, 16, 24, 4, 2, 4, 40)
SMALL_PLANS = {
    "po-h": lambda: plan_of(build("po-h", devices=4, microbatches=4, chunks=2), EIGHT),
    "sppo": lambda: plan_of(
        build("sppo", devices=4, microbatches=1, slices=4, options={"ratios": "1/3"})
    ),
    "stp-offload": lambda: plan_of(build("stp-offload", devices=4, microbatches=11), EIGHT),
    "a transform": lambda: plan_of(
        offload_stages(
            build("seq1f1b", devices=4, microbatches=3, slices=2), [0, 2], share=Fraction(2, 3)
        )
    ),
}


@pytest.mark.parametrize("name", SMALL_PLANS)
def test_no_bit_of_a_gradient_changes_where_activations_wait_on_the_host(
    ranks: Crew, name: str
) -> None:
    plan = SMALL_PLANS[name]()
    assert "O" in plan.schedule.table.kinds
    kept = replace(plan, schedule=_without_copies(plan.schedule))
    for found, right in zip(ranks.run(gradients_of, plan), ranks.run(gradients_of, kept)):
        assert found.keys() == right.keys()
        assert all(torch.equal(gradient, right[name]) for name, gradient in found.items())


def test_training_with_offload_is_training(ranks: Crew) -> None:
    plan = SMALL_PLANS["sppo"]()
    kept = replace(plan, schedule=_without_copies(plan.schedule))
    for moved, right in zip(ranks.run(trained, plan, 1, 3), ranks.run(trained, kept, 1, 3)):
        assert moved.outcomes == right.outcomes
        assert all(torch.equal(weight, right.held[name]) for name, weight in moved.held.items())


def _alone(ratio: str) -> Engine:
    plan = _built("sppo", 2048, devices=1, microbatches=1, slices=4, options={"ratios": ratio})
    engine = Engine(plan, Mesh(Grid()), Alone(), adam=NoUpdate(), device=CPU)
    begin(engine, 1)
    return engine


def test_memory_comes_back_when_a_copy_has_ended_and_a_forward_waits_for_that() -> None:
    """Slow copies do not raise the peak: an op that needs the room waits for it."""
    engine, copy = _alone("1"), MovedActivation.copy_out

    def slow(moved: MovedActivation) -> None:
        sleep(0.1)
        copy(moved)

    quick = peak_of(engine)
    with as_on_a_gpu():
        awaited = peak_of(engine)
    with mock.patch.object(MovedActivation, "copy_out", slow):
        late = peak_of(engine)
    assert quick <= 1.001 * late <= 1.002 * awaited


def test_the_pool_is_made_before_the_first_step_and_is_large_enough() -> None:
    engine = _alone("1/2")
    pool = engine.host.pool
    before = pool.bytes
    engine.gradients(batch_of(engine.plan))
    predicted = host_peaks(engine.plan.schedule, _workload(engine.plan))[0]
    assert pool.bytes == before >= pool.most
    assert pool.late == pool.held == 0
    assert pool.most == pytest.approx(predicted, rel=CLOSE)
    assert footprints(engine.plan.schedule, _workload(engine.plan))[0].host == predicted
