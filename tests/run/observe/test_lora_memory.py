"""What a step with adapters adds on each device is what is predicted, within 2 %."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from loops import one_of
from penstock.arch.lora import Lora
from penstock.cost.workload import Workload
from penstock.plan.memory import step_peaks
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from run.peak_jobs import peak_without_waits
from run.plans import heavy

pytestmark = pytest.mark.torch

CLOSE = 0.02


def _with(plan: StepPlan, *targets: str) -> StepPlan:
    lora = Lora(4, targets=targets) if targets else Lora(4)
    model = replace(plan.layout.model, lora=lora)
    return replace(plan, layout=replace(plan.layout, model=model))


PLANS: dict[str, Callable[[], StepPlan]] = {
    "1f1b": lambda: _with(heavy("1f1b", 3)),
    "zb-h1": lambda: _with(heavy("zb-h1", 3)),
    "zb-h1, queries and values": lambda: _with(heavy("zb-h1", 3), "q_proj", "v_proj"),
    "1f1b, head": lambda: _with(heavy("1f1b", 3), "q_proj", "lm_head"),
    "1f1b, down": lambda: _with(heavy("1f1b", 3), "down_proj"),
}


@pytest.mark.parametrize("name", one_of(2, ((name,) for name in PLANS)))
def test_live_bytes_at_the_peak_are_those_predicted(ranks: Crew, name: str) -> None:
    plan = PLANS[name]()
    measured = ranks.run(peak_without_waits, plan)
    workload = Workload(plan.layout.model, plan.lengths, tuple(map(len, plan.layout.split)))
    predicted = step_peaks(plan.schedule, workload, plan.rows)
    assert predicted == [pytest.approx(peak, rel=CLOSE) for peak in measured]
