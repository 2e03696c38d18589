"""Optimizer state on the host is not on the device: what is held falls as predicted."""

from typing import NamedTuple

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.cost.workload import Workload
from penstock.plan.host_memory import host_states
from penstock.plan.memory import Footprint, footprints
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.observe.memory_meter import LiveBytes
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.host_state import bytes_on_host
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.schedules import build
from run.jobs import CPU, batch_of
from run.plans import plan_of

pytestmark = pytest.mark.torch

CLOSE = 0.02
DEEP = frozenset({2, 3})
NONE: frozenset[int] = frozenset()
MODEL = ModelConfig(8, 128, 384, 4, 1, 32, 256)


def _plan(dtype: torch.dtype) -> StepPlan:
    schedule = build("chronos", devices=1, microbatches=2, chunks=4)
    return plan_of(schedule, MODEL, dtype, length=32)


class Held(NamedTuple):
    """Bytes between two steps."""

    device: int
    host: int


def _held(plan: StepPlan, stages: frozenset[int], validation: str) -> Held:
    """Live bytes after a step, without the batch."""
    adam, batch = AdamW(host_stages=stages, validation=validation), batch_of(plan)
    with LiveBytes() as meter:
        engine = Engine(plan, Mesh(Grid()), Alone(), adam=adam, device=CPU)
        begin(engine, 1)
        engine.step(batch, 0.01)
        away = bytes_on_host(engine.ends.values())
        engine.close()
        return Held(meter.level - away, away)


def _predicted(plan: StepPlan, stages: frozenset[int], states: int) -> Footprint:
    layers = tuple(map(len, plan.layout.split))
    workload = Workload(plan.layout.model, plan.lengths, layers)
    found = footprints(plan.schedule, workload, on_host=stages, states=states)
    assert [each.host for each in found] == host_states(plan.schedule, workload, stages, states)
    return found[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "validation", "states"),
    [(torch.float32, "before", 1), (torch.bfloat16, "before", 1), (torch.float32, "after", 2)],
)
def test_state_on_the_host_is_taken_off_the_device_as_predicted(
    dtype: torch.dtype, validation: str, states: int
) -> None:
    plan = _plan(dtype)
    here, there = (_held(plan, stages, validation) for stages in (NONE, DEEP))
    expected_here, expected_there = (_predicted(plan, stages, states) for stages in (NONE, DEEP))
    assert (here.host, there.host) == (0, expected_there.host)
    assert expected_here.held == pytest.approx(here.device, rel=CLOSE)
    assert expected_there.held == pytest.approx(there.device, rel=CLOSE)
    saved = expected_here.held - expected_there.held
    assert here.device - there.device == pytest.approx(saved, rel=CLOSE)
    assert saved > 0.2 * here.device
