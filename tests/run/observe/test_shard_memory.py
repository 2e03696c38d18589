"""What devices hold whose vocabulary is on shards is what is predicted, within 2 %."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from loops import one_of
from penstock.cost.workload import Workload
from penstock.plan.memory import footprints, step_peaks
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from run.peak_jobs import held_without_waits, peak_without_waits
from run.plans import again, heavy, plan_of, tied

pytestmark = pytest.mark.torch

CLOSE = 0.02
PLANS: dict[str, Callable[[], StepPlan]] = {
    "vocab-1f1b": lambda: heavy("vocab-1f1b", 3),
    "vocab-1f1b, recomputed": lambda: again(heavy("vocab-1f1b", 3)),
    "vocab-seq1f1b": lambda: heavy("vocab-seq1f1b", 3, microbatches=3, slices=4),
    "vocab-v-half": lambda: heavy("vocab-v-half", 2),
    "slimpipe-vocab": lambda: heavy("slimpipe-vocab", 3, microbatches=2, slices=4),
    "interlaced": lambda: heavy("interlaced", 3),
}


def _workload(plan: StepPlan) -> Workload:
    return Workload(plan.layout.model, plan.lengths, tuple(map(len, plan.layout.split)))


@pytest.mark.parametrize("name", one_of(2, ((name,) for name in PLANS)))
def test_live_bytes_at_the_peak_are_those_predicted(ranks: Crew, name: str) -> None:
    plan = PLANS[name]()
    measured = ranks.run(peak_without_waits, plan)
    predicted = step_peaks(plan.schedule, _workload(plan), plan.rows)
    assert predicted == [pytest.approx(peak, rel=CLOSE) for peak in measured]


def _with_words(name: str, words: int, *, is_tied: bool = False) -> StepPlan:
    plan = heavy(name, 2)
    model = replace(plan.layout.model, vocabulary=words)
    found = plan_of(plan.schedule, model, plan.layout.dtype, length=128)
    return tied(found) if is_tied else found


@pytest.mark.parametrize("is_tied", [False, True], ids=["apart", "tied"])
def test_the_last_device_is_relieved_of_a_large_vocabulary_as_predicted(
    ranks: Crew, is_tied: bool
) -> None:
    """Weights, gradients and the peak of a step, with 8192 words of 64 elements."""
    found = {}
    for name in ("1f1b", "vocab-1f1b"):
        plan = _with_words(name, 8192, is_tied=is_tied)
        forecast = footprints(plan.schedule, _workload(plan), plan.rows)
        # moments are left out: they are what weights are, twice
        stored = [each.optimizer - 2 * moment for each, moment in zip(forecast, _moments(plan))]
        predicted = [held + each.step for held, each in zip(stored, forecast)]
        measured = ranks.run(held_without_waits, plan)
        assert predicted == [pytest.approx(each, rel=CLOSE) for each in measured]
        found[name] = measured
    plain, sharded = found["1f1b"], found["vocab-1f1b"]
    assert sharded[-1] < 0.7 * plain[-1]
    assert max(sharded) < max(plain)


def _moments(plan: StepPlan) -> list[int]:
    """Bytes of one moment on each device."""
    layout, devices = plan.layout, range(plan.layout.devices)
    return [
        4 * sum(layout.parameters(number).stored for number in layout.stages_of(device))
        for device in devices
    ]
