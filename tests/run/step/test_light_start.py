"""A process that trains does not load PyTorch's compiler, which takes it seconds at its start."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

TRAIN = """
import sys
import torch
from penstock.arch.presets import MODELS
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.observe.inspected_step import look_at_step
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import engine_on
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.schedules import build
from run.jobs import batch_of

schedule = build("1f1b", devices=1, microbatches=2)
plan = StepPlan(Layout.of(MODELS["tiny"], schedule, 8), schedule, ((8,),) * 2)
engine = engine_on(Mesh(Grid()), plan, AdamW(), torch.device("cpu"))
begin(engine, 1)
engine.step(batch_of(plan), 0.01)
look_at_step(engine, batch_of(plan))
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.processes
def test_a_step_and_a_look_at_its_memory_load_no_compiler(pytestconfig: pytest.Config) -> None:
    found = subprocess.run(
        [sys.executable, "-c", TRAIN],
        capture_output=True,
        text=True,
        cwd=pytestconfig.rootpath / "tests",
        check=True,
    )
    assert found.stdout == "False\n"
