"""On a GPU: optimizer state on the host, and updates that are validated after they were made.

Both sides compute the same in another place or at another time. Kernels of a GPU round differently
from those of the host, and some add up in the order in which blocks end. AdamW makes a whole step
of any gradient, however small, so where a gradient is nothing but rounding its weights part. What
is compared is therefore how far all weights of a stage have moved.
"""

from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.schedules import build
from penstock.transform import offload_stages
from penstock.verify.scale import CUDA
from run.jobs import batch_of
from run.plans import plan_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

STEPS, RATE = 5, 1e-3
SOMETIMES = 0.6
"""A limit that some norms are above."""
DEEP, ALL = frozenset({2, 3}), frozenset(range(4))
PLAN = plan_of(
    build("chronos", devices=1, microbatches=2, chunks=4),
    replace(CUDA.model, layers=8),
    torch.float32,
    length=CUDA.length,
)


class Trained(NamedTuple):
    losses: list[float]
    before: dict[int, Tensor]
    after: dict[int, Tensor]
    """Weights of each stage."""


def _trained(plan: StepPlan, adam: AdamW) -> Trained:
    engine = Engine(plan, Mesh(Grid()), Alone(), adam=adam, device=torch.device("cuda", 0))
    begin(engine, 1)
    with closing(engine):
        before = _weights(engine)
        seen = [each for n in range(STEPS) for each in engine.advance(batch_of(plan, n), RATE)]
        seen += engine.finish()
        return Trained([outcome.loss for outcome in seen], before, _weights(engine))


def _weights(engine: Engine) -> dict[int, Tensor]:
    return {stage: held.value.cpu().clone() for stage, held in engine.weights.items()}


def _train_alike(one: tuple[StepPlan, AdamW], other: tuple[StepPlan, AdamW]) -> None:
    here, there = _trained(*one), _trained(*other)
    assert len(there.losses) == STEPS
    assert there.losses == pytest.approx(here.losses, rel=1e-4)
    for stage, value in here.after.items():
        moved = (value - here.before[stage]).norm()
        assert moved > 0
        assert (there.after[stage] - value).norm() < 0.05 * moved


@pytest.mark.parametrize("clip", [SOMETIMES, 0.0], ids=["clipped", "never clipped"])
@pytest.mark.parametrize("validation", ["before", "after"])
@pytest.mark.parametrize("stages", [DEEP, ALL], ids=["deep", "all"])
def test_state_on_the_host_trains_as_state_on_the_device(
    stages: frozenset[int], validation: str, clip: float
) -> None:
    adam = AdamW(clip=clip, validation=validation)
    _train_alike((PLAN, adam), (PLAN, replace(adam, host_stages=stages)))


def test_updates_that_are_validated_after_them() -> None:
    before, after = (AdamW(clip=SOMETIMES, validation=when) for when in ("before", "after"))
    _train_alike((PLAN, before), (PLAN, after))


def test_activations_that_wait_on_the_host() -> None:
    moved = replace(PLAN, schedule=offload_stages(PLAN.schedule, range(4)))
    _train_alike((PLAN, AdamW()), (moved, AdamW()))
