"""Updates that are made before the norm is known come to the same bits as those made after."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch

from penstock.arch.cell_shape import CellShape
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from run.plans import SMALL, in_cells, plan_of, tied
from run.validation_jobs import Disturbed, Request, Seen, both_ways

pytestmark = pytest.mark.torch

WIDE = replace(SMALL, layers=8)
FLAT = plan_of(build("1f1b", devices=4, microbatches=4), WIDE)
SPLIT = plan_of(build("zb-h1", devices=4, microbatches=4), WIDE)
FOLDED = plan_of(build("zb-v", devices=4, microbatches=4), WIDE)
HALF = plan_of(build("1f1b", devices=2, microbatches=2), WIDE)


def equal(ranks: Crew, request: Request) -> list[Seen]:
    """What the ranks have where updates are validated after; the same as before."""
    found = ranks.run(both_ways, request)
    for before, after in found:
        assert before.refusal == ""
        assert after.outcomes == before.outcomes
        assert len(after.outcomes) == request.steps
        _same_bits(before, after)
    return [after for _, after in found]


def _same_bits(before: Seen, after: Seen) -> None:
    assert before.ages == after.ages
    assert before.stored.keys() == after.stored.keys()
    for name, value in before.stored.items():
        assert torch.equal(after.stored[name], value), name
    for stage, value in before.values.items():
        assert torch.equal(after.values[stage], value), stage


@pytest.mark.parametrize("plan", [FLAT, SPLIT, FOLDED], ids=["1f1b", "zb-h1", "zb-v"])
def test_steps_that_need_no_clipping_are_never_taken_back(ranks: Crew, plan: StepPlan) -> None:
    for seen in equal(ranks, Request((plan,), clip=100.0)):
        assert seen.early == 4 * len(seen.ages)
        assert not seen.taken_back


@pytest.mark.parametrize("plan", [FLAT, SPLIT, FOLDED], ids=["1f1b", "zb-h1", "zb-v"])
def test_a_norm_that_is_too_large_only_as_a_whole_takes_all_updates_back(
    ranks: Crew, plan: StepPlan
) -> None:
    found = equal(ranks, Request((plan,), clip=0.55))
    norms = [outcome.norm for outcome in found[0].outcomes]
    assert min(norms) > 0.55
    assert sum(seen.taken_back for seen in found) > 8
