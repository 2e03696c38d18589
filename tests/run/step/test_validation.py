"""Updates that are made before the norm is known come to the same bits as those made after."""

from dataclasses import replace
from math import inf, nan
from unittest import mock

import pytest
import torch

from loops import one_of
from penstock.arch.cell_shape import CellShape
from penstock.errors import RunError
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.run.step.validation import validation_named
from penstock.schedules import build
from run.jobs import CPU, batch_of
from run.plans import SMALL, in_cells, plan_of, tied
from run.validation_jobs import Disturbed, Request, Seen, both_ways, held, saved_at_once

pytestmark = pytest.mark.torch

WIDE = replace(SMALL, layers=8)
FLAT = plan_of(build("1f1b", devices=4, microbatches=4), WIDE)
SPLIT = plan_of(build("zb-h1", devices=4, microbatches=4), WIDE)
FOLDED = plan_of(build("zb-v", devices=4, microbatches=4), WIDE)
SLICED = plan_of(build("seq1f1b", devices=4, microbatches=2, slices=3), WIDE)
VOCABULARY = plan_of(build("vocab-1f1b", devices=4, microbatches=4), WIDE)
HALF = plan_of(build("interleaved", devices=2, microbatches=2, chunks=2), WIDE)

BELOW_ALL = 100.0
"""A limit that no norm comes near."""
ABOVE_ONE = 0.7
"""A limit above the norm of each stage in all steps, and below that of the model in one."""
SOMETIMES = 0.55
"""A limit that most norms are above, and those of most stages are not."""


def equal(ranks: Crew, request: Request) -> list[Seen]:
    """What the ranks have where updates are validated after; the same as before."""
    found = ranks.run(both_ways, request)
    for before, after in found:
        assert not before.refusal
        assert len(before.outcomes) == request.steps
        _same(before, after)
    return [after for _, after in found]


def _same(before: Seen, after: Seen) -> None:
    """Losses, norms, counts of updates, weights, moments and what is computed with."""
    assert after.outcomes == before.outcomes
    assert after.ages == before.ages
    assert after.stored.keys() == before.stored.keys()
    for name, value in before.stored.items():
        assert torch.equal(after.stored[name], value), name
    for stage, value in before.values.items():
        assert torch.equal(after.values[stage], value), stage


def test_steps_that_need_no_clipping_are_never_taken_back(ranks: Crew) -> None:
    for plan in (FLAT, FOLDED):
        for seen in equal(ranks, Request((plan,), BELOW_ALL)):
            assert seen.early == 4 * len(seen.ages)
            assert not seen.taken_back


@pytest.mark.matrix
def test_a_norm_that_is_too_large_only_as_a_whole_takes_all_updates_back(ranks: Crew) -> None:
    for plan in (FLAT, SPLIT, FOLDED):
        found = equal(ranks, Request((plan,), ABOVE_ONE))
        norms = [outcome.norm for outcome in found[0].outcomes]
        above = sum(norm > ABOVE_ONE for norm in norms)
        assert above == 1
        for seen in found:
            assert seen.early == 4 * len(seen.ages)
            assert seen.taken_back == above * len(seen.ages)


def test_a_limit_below_every_norm_lets_no_stage_be_updated_early(ranks: Crew) -> None:
    for seen in equal(ranks, Request((FLAT,), clip=1e-3)):
        assert seen.early == 0


@pytest.mark.parametrize("device", [0, 3])
def test_a_norm_above_the_limit_on_one_device_corrects_all(ranks: Crew, device: int) -> None:
    request = Request((FLAT,), 3.0, disturbed=Disturbed(device, 1, 50.0))
    found = equal(ranks, request)
    assert [outcome.norm > 3.0 for outcome in found[0].outcomes] == [False, True, False, False]
    for rank, seen in enumerate(found):
        assert (seen.early, seen.taken_back) == ((3, 0) if rank == device else (4, 1))


@pytest.mark.parametrize("step", [1, 3], ids=["midway", "last"])
@pytest.mark.parametrize("factor", [nan, inf])
def test_what_is_no_number_is_refused_with_weights_as_before_that_step(
    ranks: Crew, factor: float, step: int
) -> None:
    """And another step can follow."""
    disturbed = Disturbed(2, step, factor)
    request = Request((FLAT,), BELOW_ALL, disturbed=disturbed, goes_on=True)
    for rank, (before, after) in enumerate(ranks.run(both_ways, request)):
        assert before.refusal.startswith("the loss is")
        assert after.refusal.endswith("whose update was taken back")
        _same(before, after)
        assert len(after.outcomes) == step + 1
        assert after.taken_back == (rank != 2)


@pytest.mark.matrix
def test_replicas_tied_weights_and_plans_that_change(ranks: Crew) -> None:
    disturbed = Disturbed(1, 1, 50.0)
    for request in (
        Request((HALF,), SOMETIMES, replicas=2),
        Request((tied(HALF),), 3.0, replicas=2, disturbed=disturbed),
        Request((FLAT, SLICED, SPLIT), SOMETIMES, disturbed=disturbed),
        Request((VOCABULARY,), SOMETIMES),
    ):
        assert sum(seen.taken_back for seen in equal(ranks, request))


def test_weights_that_are_narrower_than_what_is_updated(ranks: Crew) -> None:
    plan = plan_of(build("1f1b", devices=4, microbatches=4), WIDE, torch.bfloat16)
    assert sum(seen.taken_back for seen in equal(ranks, Request((plan,), SOMETIMES)))


@pytest.mark.parametrize("shard", one_of(2, (("optimizer",), ("full",))))
def test_ranks_that_share_an_optimizer(ranks: Crew, shard: str) -> None:
    """Also where one of them refuses by what it owns and the other one does not."""
    for disturbed in (None, Disturbed(1, 1, 50.0)):
        request = Request((HALF,), SOMETIMES, replicas=2, shard=shard, disturbed=disturbed)
        assert sum(seen.taken_back for seen in equal(ranks, request))


def test_cells_of_tensor_ranks(ranks: Crew) -> None:
    plan = in_cells(plan_of(build("1f1b", devices=2, microbatches=2), WIDE), CellShape(tensor=2))
    assert sum(seen.taken_back for seen in equal(ranks, Request((plan,), SOMETIMES)))


def test_what_is_saved_right_after_a_step_is_validated_first(ranks: Crew) -> None:
    assert all(ranks.run(saved_at_once, FLAT))


def _alone(plan: StepPlan, validation: str) -> Engine:
    adam = AdamW(clip=0.3, validation=validation)
    engine = Engine(plan, Mesh(Grid()), Alone(), adam=adam, device=CPU)
    begin(engine, 1)
    return engine


@pytest.mark.parametrize("work", ["forward", "backward"])
def test_an_error_midway_leaves_the_step_before_it_right(work: str) -> None:
    """In a forward its update is not confirmed yet; in a backward it has been corrected."""
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    right, engine = _alone(plan, "before"), _alone(plan, "after")
    first = right.step(batch_of(plan), 0.01)
    assert engine.advance(batch_of(plan), 0.01) == []
    stage = type(engine.stages[0])
    failing = mock.patch.object(stage, work, side_effect=ZeroDivisionError)
    with failing, pytest.raises(ZeroDivisionError):
        engine.advance(batch_of(plan, 1), 0.01)
    assert engine.finish() == [first]
    for one, other in zip(held(engine)[0].values(), held(right)[0].values(), strict=True):
        assert torch.equal(one, other)


def test_an_evaluation_and_a_look_at_gradients_come_after_the_validation() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    right, engine = _alone(plan, "before"), _alone(plan, "after")
    first = right.step(batch_of(plan), 0.01)
    engine.advance(batch_of(plan), 0.01)
    assert engine.evaluate([batch_of(plan, 1)]) == right.evaluate([batch_of(plan, 1)])
    second = right.step(batch_of(plan, 1), 0.01)
    assert engine.advance(batch_of(plan, 1), 0.01) == [first]
    assert engine.gradients(batch_of(plan, 2)) == right.gradients(batch_of(plan, 2))
    assert engine.finish() == [second]


def test_a_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(RunError, match="there is no validation 'afterwards'"):
        validation_named("afterwards")
