"""Updates on the host come to the same bits as those on the device."""

from dataclasses import replace
from math import nan
from threading import current_thread
from unittest import mock

import pytest
import torch

from loops import one_of
from penstock.arch.cell_shape import CellShape
from penstock.errors import RunError, ShapeError
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.host_state import HostOptimizer
from penstock.run.step.optimizer import AdamW
from penstock.run.step.sharding import OptimizerShards
from penstock.run.step.state import begin
from penstock.schedules import build
from penstock.transform import offload_stages
from run.jobs import CPU, batch_of
from run.plans import SMALL, in_cells, plan_of, tied
from run.validation_jobs import Disturbed, Request, Seen, both_places

pytestmark = pytest.mark.torch

WIDE = replace(SMALL, layers=8)
FLAT = plan_of(build("1f1b", devices=4, microbatches=4), WIDE)
FOLDED = plan_of(build("zb-v", devices=4, microbatches=4), WIDE)
CHRONOS = plan_of(build("chronos", devices=4, microbatches=4, chunks=2), WIDE)
HALF = plan_of(build("interleaved", devices=2, microbatches=2, chunks=2), WIDE)

SOMETIMES = 0.6
"""A limit that some norms are above, and those of most stages are not."""
NEVER = 0.0

DEEP = frozenset({4, 5, 6, 7})
LAST_HALF = frozenset({2, 3})


def equal(ranks: Crew, request: Request, validation: str = "before") -> list[Seen]:
    """What the ranks have where some state is on the host; the same as on the device."""
    found = ranks.run(both_places, request, validation)
    for here, there in found:
        assert len(there.outcomes) == request.steps
        _same(here, there)
    return [there for _, there in found]


def _same(here: Seen, there: Seen) -> None:
    """Losses, norms, counts of updates, weights, moments and what is computed with."""
    assert (there.outcomes, there.ages, there.refusal) == (here.outcomes, here.ages, here.refusal)
    assert there.stored.keys() == here.stored.keys()
    for name, value in here.stored.items():
        assert torch.equal(there.stored[name], value), name
    for stage, value in here.values.items():
        assert torch.equal(there.values[stage], value), stage


@pytest.mark.parametrize("clip", one_of(2, [(SOMETIMES,), (NEVER,)]))
def test_no_bit_changes_whatever_the_schedule(ranks: Crew, clip: float) -> None:
    for plan, stages in ((FLAT, LAST_HALF), (FOLDED, DEEP), (CHRONOS, DEEP)):
        found = equal(ranks, Request((plan,), clip, host_stages=stages))
        above = [outcome.norm > clip for outcome in found[0].outcomes]
        assert not clip or len({*above}) == 2


def test_replicas_and_cells_of_tensor_ranks(ranks: Crew) -> None:
    flat = plan_of(build("1f1b", devices=2, microbatches=2), WIDE)
    cells = in_cells(flat, CellShape(tensor=2))
    equal(ranks, Request((HALF,), SOMETIMES, replicas=2, host_stages=LAST_HALF))
    equal(ranks, Request((cells,), SOMETIMES, host_stages=frozenset({1})))


def test_all_stages_of_a_tied_model(ranks: Crew) -> None:
    """The gradient that two stages share goes to the host when it has been added up."""
    everywhere = frozenset(range(4))
    equal(ranks, Request((tied(HALF),), SOMETIMES, replicas=2, host_stages=everywhere))


def test_weights_that_are_narrower_than_what_is_updated(ranks: Crew) -> None:
    plan = plan_of(build("1f1b", devices=4, microbatches=4), WIDE, torch.bfloat16)
    equal(ranks, Request((plan,), SOMETIMES, host_stages=LAST_HALF))


@pytest.mark.matrix
def test_beside_activations_that_wait_on_the_host(ranks: Crew) -> None:
    schedule = offload_stages(build("chronos", devices=4, microbatches=4, chunks=2), range(8))
    equal(ranks, Request((plan_of(schedule, WIDE),), SOMETIMES, host_stages=DEEP))
    equal(ranks, Request((plan_of(schedule, WIDE),), SOMETIMES, host_stages=DEEP), "after")


def test_updates_that_are_validated_after_them(ranks: Crew) -> None:
    for plan, stages in ((FLAT, LAST_HALF), (CHRONOS, DEEP)):
        found = equal(ranks, Request((plan,), SOMETIMES, host_stages=stages), "after")
        assert sum(seen.taken_back for seen in found)


@pytest.mark.parametrize("validation", ["before", "after"])
def test_what_is_no_number_is_refused_with_weights_as_before(ranks: Crew, validation: str) -> None:
    disturbed = Disturbed(3, 1, nan)
    request = Request((FLAT,), 100.0, disturbed=disturbed, goes_on=True, host_stages=LAST_HALF)
    for here, there in ranks.run(both_places, request, validation):
        assert here.refusal.startswith("the loss is")
        _same(here, there)


def _alone(plan: StepPlan, adam: AdamW, **given: OptimizerShards) -> Engine:
    engine = Engine(plan, Mesh(Grid()), Alone(), adam=adam, device=CPU, **given)
    begin(engine, 1)
    return engine


FOUR = plan_of(build("chronos", devices=1, microbatches=2, chunks=4), WIDE)


def test_a_gradient_goes_down_while_other_stages_compute() -> None:
    """On a thread of its own, before the norm is known; the update comes behind it."""
    engine, seen = _alone(FOUR, AdamW(host_stages=LAST_HALF)), list[str]()
    take, update = HostOptimizer.take_gradient, HostOptimizer.update

    def taking(optimizer: HostOptimizer) -> None:
        seen.append(f"down on {current_thread().name}")
        take(optimizer)

    def updating(optimizer: HostOptimizer, rate: float, factor: float) -> None:
        seen.append(f"update on {current_thread().name}")
        update(optimizer, rate, factor)

    with (
        mock.patch.object(HostOptimizer, "take_gradient", taking),
        mock.patch.object(HostOptimizer, "update", updating),
    ):
        engine.step(batch_of(FOUR), 0.01)
    assert seen == [f"{what} on penstock-copy" for what in ("down",) * 2 + ("update",) * 2]
    numbers = {call.op: call.number for call in engine.executor.lane.calls}
    norms = [numbers[op] for op in numbers if op.kind == "V" and op.stage in LAST_HALF]
    last = max(number for op, number in numbers.items() if op.kind == "B" and op.stage == 0)
    assert max(norms) < last
    (norm,) = [j for c in engine.executor.lane.calls for j in c.joins if j.buf.name == "norm"]
    assert sorted(norm.awaits) == sorted(norms)  # or the sum could be taken without them
    engine.close()


def test_what_ranks_share_is_refused_on_the_host() -> None:
    with pytest.raises(RunError, match="stages 2, 3 is to be on the host, but ranks share it"):
        _alone(FOUR, AdamW(host_stages=LAST_HALF), sharding=OptimizerShards())


def test_one_end_of_a_tied_weight_is_refused_on_the_host() -> None:
    with pytest.raises(RunError, match="stages 0 and 3 share a weight, but only one"):
        _alone(tied(FOUR), AdamW(host_stages=LAST_HALF))


def test_a_stage_that_is_not_there_is_refused() -> None:
    with pytest.raises(ShapeError, match="stage 9 has no weights"):
        _alone(FOUR, AdamW(host_stages=frozenset({9})))
