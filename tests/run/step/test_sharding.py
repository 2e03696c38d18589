"""Replicas that share the optimizer learn what replicas learn that do everything."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from loops import one_of
from penstock.core.schedule import Schedule
from penstock.cost.copies import Copies
from penstock.cost.rank_share import RankShare
from penstock.cost.workload import Workload
from penstock.errors import RunError
from penstock.plan.memory import footprints
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.sharding import OptimizerShards
from penstock.run.step.shardings import sharding_named
from penstock.schedules import build
from run.plans import SMALL, plan_of
from run.shard_jobs import CLIP, SharedRun, bytes_sent, resumed, room_of, stored, trained_with

pytestmark = pytest.mark.torch

PAGE = Path(__file__).parents[3] / "docs/concepts/sharding.md"
ODD = replace(SMALL, vocabulary=41)
"""Neither the embedding nor the rest can be dealt evenly to four ranks."""
TWO_DEVICES = build("1f1b", devices=2, microbatches=2)
ONE_DEVICE = build("1f1b", devices=1, microbatches=2)
SPREADS = {
    "the ends apart": TWO_DEVICES,
    "the ends on one device": build("zb-v", devices=2, microbatches=4),
    "one stage": ONE_DEVICE,
}
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2**-7}
"""Largest difference over the largest value. Four replicas are added up in another order."""


def _plan(schedule: Schedule, dtype: torch.dtype, *, tied: bool = False) -> StepPlan:
    return plan_of(schedule, replace(ODD, tied=tied), dtype)


def _near(mine: Tensor, right: Tensor, bound: float) -> bool:
    largest = float(right.double().abs().max()) if right.numel() else 0.0
    return not right.numel() or float((mine - right).double().abs().max()) <= bound * largest


def differences(shared: SharedRun, right: SharedRun, bound: float) -> set[str]:
    """What is not the same in two runs of a rank."""
    whole = {piece.stage_name: piece for piece in right.pieces}
    owned = [(piece, whole[piece.stage_name]) for piece in shared.pieces]
    pairs = {
        "loss": [(torch.tensor(a[:2]), torch.tensor(b[:2])) for a, b in _steps(shared, right)],
        "value": [(shared.values[n], value) for n, value in right.values.items()],
        "gradient": [(shared.gradients[n], grad) for n, grad in right.gradients.items()],
        "main": [(mine.main, full.main[mine.inside]) for mine, full in owned],
        "moment": [
            (moment, full.moments[name][mine.inside])
            for mine, full in owned
            for name, moment in mine.moments.items()
        ],
    }
    return {name for name, of in pairs.items() if not all(_near(*pair, bound) for pair in of)}


def _steps(shared: SharedRun, right: SharedRun) -> list[tuple[tuple[float, ...], ...]]:
    return [*zip(shared.outcomes, right.outcomes)]


@pytest.mark.parametrize(("spread", "dtype"), one_of(4, product(SPREADS, BOUNDS)))
def test_three_clipped_steps_are_those_of_replicas_that_do_everything(
    ranks: Crew, spread: str, dtype: torch.dtype
) -> None:
    """Losses, norms, values, main weights, moments, and then the gradient of one more batch."""
    schedule = SPREADS[spread]
    replicas = 4 // schedule.shape.devices
    for tied in (False, True):
        plan = _plan(schedule, dtype, tied=tied)
        shared = ranks.run(trained_with, plan, replicas, "optimizer")
        right = ranks.run(trained_with, plan, replicas, "none")
        assert min(outcome.norm for outcome in right[0].outcomes) > CLIP
        for mine, theirs in zip(shared, right):
            assert not differences(mine, theirs, BOUNDS[dtype])


def test_replicas_own_every_element_once_and_compute_with_the_same_values(ranks: Crew) -> None:
    plan = _plan(ONE_DEVICE, torch.bfloat16, tied=True)
    found = ranks.run(trained_with, plan, 4, "optimizer")
    for first, *others in zip(*(run.values.values() for run in found)):
        assert all(torch.equal(first, other) for other in others)
    for pieces in zip(*(run.pieces for run in found)):
        owned = [n for piece in pieces for n in range(piece.inside.start, piece.inside.stop)]
        gradient = found[0].gradients[pieces[0].stage_name]
        assert owned == [*range(gradient.numel())], pieces[0].stage_name


@pytest.mark.parametrize(
    ("without", "wrong"),
    [("gather_ranges", "value"), ("scatter_sum", "moment")],
    ids=["values are not gathered", "gradients are not summed"],
)
def test_a_collective_that_is_left_out_is_seen(ranks: Crew, without: str, wrong: str) -> None:
    plan = _plan(TWO_DEVICES, torch.float64)
    shared = ranks.run(trained_with, plan, 2, "optimizer", without)
    right = ranks.run(trained_with, plan, 2, "none")
    for mine, theirs in zip(shared, right):
        assert wrong in differences(mine, theirs, 1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_range_moves_once_to_each_replica_that_lacks_it(
    ranks: Crew, dtype: torch.dtype
) -> None:
    """Gradients in 32 bits to their owner, and values as they are computed with to all."""
    for tied in (False, True):
        found = ranks.run(bytes_sent, _plan(ONE_DEVICE, dtype, tied=tied), 4)
        elements = found[0].elements
        assert sum(rank.sums for rank in found) == 3 * 4 * elements
        assert sum(rank.gathers for rank in found) == 3 * dtype.itemsize * elements
        most = max(rank.sums + rank.gathers for rank in found)
        assert most <= (0.75 * elements + 3) * (4 + dtype.itemsize)


def test_each_replica_sends_what_was_predicted(ranks: Crew) -> None:
    for tied in (False, True):
        plan = _plan(ONE_DEVICE, torch.bfloat16, tied=tied)
        share = RankShare(plan.layout.model, plan.layout.cell)
        for index, found in enumerate(ranks.run(bytes_sent, plan, 4)):
            copies = Copies(share, (4,), 4, index, "optimizer")
            sums, gathers = (copies.sent(kind, 0).copies for kind in "ZU")
            assert (found.sums, found.gathers) == (sums, gathers)


def test_without_replicas_a_rank_owns_everything() -> None:
    from penstock.run.comm.grid import Grid
    from penstock.run.comm.mesh import Mesh

    layout = _plan(ONE_DEVICE, torch.float32).layout.parameters(0)
    own = OptimizerShards().ownership(layout, Mesh(Grid()), tied=False)
    assert own.elements == layout.stored


def test_a_name_that_no_sharding_has_is_refused() -> None:
    with pytest.raises(RunError, match="there is no sharding 'optimiser'") as error:
        sharding_named("optimiser")
    assert error.value.hint == "did you mean 'optimizer'?"


@pytest.mark.parametrize("schedule", [ONE_DEVICE, TWO_DEVICES], ids=["one stage", "two stages"])
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_memory_is_what_was_predicted(ranks: Crew, schedule: Schedule, dtype: torch.dtype) -> None:
    """What is held all the time, and what the end of a step adds, within 2 %."""
    devices = schedule.shape.devices
    for tied in (False, True):
        model = replace(ODD, hidden=64, ffn=96, vocabulary=301, tied=tied)
        plan = plan_of(schedule, model, dtype)
        workload = Workload.of(schedule.shape, plan.layout.model, plan.lengths[0])
        alone, shared = (footprints(schedule, workload, owners=n) for n in (1, 4 // devices))
        for rank, found in enumerate(ranks.run(room_of, plan, 4 // devices)):
            expected = shared[rank % devices]
            assert expected.optimizer < 0.8 * alone[rank % devices].optimizer
            assert found.weights == expected.weights
            assert found.optimizer == pytest.approx(expected.optimizer, rel=1e-4)
            assert found.end == pytest.approx(expected.end, rel=0.02)


@pytest.mark.parametrize("dtype", one_of(2, [(torch.bfloat16,), (torch.float64,)]))
def test_a_checkpoint_serves_runs_that_share_otherwise(
    ranks: Crew, tmp_path: Path, dtype: torch.dtype
) -> None:
    """Each rank stores what it owns; who loads it may own something else."""
    whole = _plan(ONE_DEVICE, dtype, tied=True)
    halves = _plan(build("1f1b", devices=2, microbatches=4), dtype, tied=True)
    right = ranks.run(trained_with, whole, 4, "none", "", 4)[0].outcomes[-2]
    for number, (plan, replicas, shard) in enumerate(
        [(whole, 4, "optimizer"), (halves, 2, "optimizer"), (halves, 2, "none")]
    ):
        ranks.run(stored, plan, replicas, shard, tmp_path / str(number))
        for other, owners, how in [(whole, 4, "none"), (halves, 2, "optimizer")]:
            for found in ranks.run(resumed, other, owners, how, tmp_path / str(number)):
                assert found.labels == right.labels
                assert found.loss == pytest.approx(right.loss, rel=BOUNDS[dtype])
                assert found.norm == pytest.approx(right.norm, rel=10 * BOUNDS[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_the_page_has_what_is_held_and_sent(ranks: Crew, dtype: torch.dtype) -> None:
    plan = _plan(ONE_DEVICE, dtype)
    elements = plan.layout.model.parameters
    sent = sum(rank.sums + rank.gathers for rank in ranks.run(bytes_sent, plan, 4))
    page, name = PAGE.read_text(), str(dtype).removeprefix("torch.")
    for shard, moved in (("none", 2 * 3 * 4 * elements), ("optimizer", sent)):
        rooms = ranks.run(room_of, plan, 4, shard)
        held = sum(room.weights + room.optimizer for room in rooms)
        row = f"| {name} | {shard} | {held / elements / 4:.3g} | {moved / elements / 4:.3g} |"
        assert row in page
