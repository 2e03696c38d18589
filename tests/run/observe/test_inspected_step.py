"""A look at a step: it changes nothing, and its memory is what was predicted."""

import pytest
import torch

from loops import one_of
from penstock.cost.workload import Workload
from penstock.plan.memory import step_peaks
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.execute.observer import Both, Quiet
from penstock.run.launch.worker_pool import Crew
from penstock.run.observe.inspected_step import CpuTime, look_at_step
from penstock.run.program.calls import Call
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.schedules import build
from run.jobs import CPU, batch_of, looked_without_waits
from run.plans import again, heavy, plan_of, wide_and_normed

pytestmark = pytest.mark.torch

PLANS = {
    "1f1b": lambda: heavy("1f1b", 2),
    "1f1b, recomputed": lambda: again(heavy("1f1b", 3)),
    "seq1f1b": lambda: heavy("seq1f1b", 2, microbatches=3, slices=4),
    "seq1f1b, recomputed": lambda: again(heavy("seq1f1b", 3, microbatches=3, slices=4)),
    "seq1f1b in float64": lambda: heavy("seq1f1b", 2, torch.float64, microbatches=3, slices=2),
    "seq1f1b-zb": lambda: heavy("seq1f1b-zb", 2, microbatches=3, slices=4),
    "seq1f1b, with norms of wide heads": lambda: wide_and_normed(
        heavy("seq1f1b", 2, microbatches=3, slices=4)
    ),
    "seq1f1b-zb, with norms of wide heads": lambda: wide_and_normed(
        heavy("seq1f1b-zb", 2, microbatches=3, slices=4)
    ),
    "zb-h1": lambda: heavy("zb-h1", 2),
    "zb-v": lambda: heavy("zb-v", 2),
    "slimpipe-exchange": lambda: heavy("slimpipe-exchange", 2, microbatches=2, slices=4),
    "slimpipe-level": lambda: heavy("slimpipe-level", 2, microbatches=2, slices=8),
    "sppo-msp": lambda: heavy("sppo-msp", 2, microbatches=1, slices=8),
    "interleaved": lambda: heavy("interleaved", 2, microbatches=4, chunks=2),
}


def _predicted(plan: StepPlan) -> list[int]:
    workload = Workload(plan.layout.model, plan.lengths, tuple(map(len, plan.layout.split)))
    return step_peaks(plan.schedule, workload, plan.rows)


@pytest.mark.parametrize("name", one_of(2, ((name,) for name in PLANS)))
def test_live_bytes_at_the_peak_are_those_predicted_within_a_twentieth(
    ranks: Crew, name: str
) -> None:
    plan = PLANS[name]()
    seen = ranks.run(looked_without_waits, plan, 1)[0]
    assert seen is not None
    measured = [int(peak) for peak in seen.timeline.peak]
    assert _predicted(plan) == [pytest.approx(peak, rel=0.05) for peak in measured]


def test_replicas_hold_what_one_pipeline_holds(ranks: Crew) -> None:
    plan = heavy("1f1b", 3, devices=2, microbatches=4)
    looks = ranks.run(looked_without_waits, plan, 2)
    found = [[int(peak) for peak in each.timeline.peak] for each in looks if each]
    assert len(found) == 2
    for measured in found:
        assert _predicted(plan) == [pytest.approx(peak, rel=0.05) for peak in measured]


def _alone() -> Engine:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    engine = Engine(plan, Mesh(Grid()), Alone(), adam=AdamW(), device=CPU)
    begin(engine, 1)
    return engine


def test_a_look_changes_no_weight_and_gives_the_observer_back() -> None:
    engine = _alone()
    before, observer = engine.weights[0].main.clone(), engine.executor.observer
    first, second = (
        look_at_step(engine, batch_of(engine.plan)),
        look_at_step(engine, batch_of(engine.plan)),
    )
    assert first is not None
    assert second is not None
    assert first.timeline.peak == second.timeline.peak
    assert torch.equal(engine.weights[0].main, before)
    assert engine.executor.observer is observer


def test_the_observer_comes_back_even_where_a_step_fails() -> None:
    engine = _alone()
    observer = engine.executor.observer
    engine.working[0].layers = None
    with pytest.raises(TypeError):
        look_at_step(engine, batch_of(engine.plan))
    assert engine.executor.observer is observer


def test_two_observers_hear_everything_the_second_nearest_to_the_op() -> None:
    said: list[str] = []

    class Ear(Quiet):
        def __init__(self, name: str) -> None:
            self.name = name

        def runs(self, call: Call) -> None:
            said.append(f"{self.name} runs")

        def ran(self, call: Call) -> None:
            said.append(f"{self.name} ran")

    both, call = Both(Ear("a"), Ear("b")), _alone().executor.lane.calls[0]
    both.runs(call)
    both.ran(call)
    assert said == ["a runs", "b runs", "b ran", "a ran"]


def test_time_of_the_thread_does_not_run_while_it_sleeps() -> None:
    from time import sleep

    clock = CpuTime()
    call = _alone().executor.lane.calls[0]
    clock.runs(call)
    sleep(0.05)
    clock.ran(call)
    assert 0 <= clock.nanoseconds[call.op] < 0.04e9
