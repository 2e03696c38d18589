"""Ranks that keep ranges of their stages and gather whole ones learn what whole replicas learn."""

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from loops import one_of
from penstock.core.schedule import Schedule
from penstock.cost.workload import Workload
from penstock.errors import RunError
from penstock.plan.memory import Gathered, footprints
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.rotation import rotation_of
from penstock.run.program.sharded_schedule import TWO_BUFFERS, shard_weights
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.shardings import SHARDINGS, sharding_named
from penstock.schedules import build
from penstock.transform import recompute_all, shard
from penstock.transform.buffer_stays import BY_NUMBER, FARTHEST
from run.full_jobs import (
    FAULTS,
    collected,
    evaluated,
    held_between_steps,
    live_bytes,
    losses_with_spoiled_buffers,
    trained_alone,
    trained_with_fault,
    trained_with_two_plans,
)
from run.plans import SMALL, plan_of
from run.shard_jobs import resumed, stored, trained_with
from run.step.test_sharding import BOUNDS, ODD, PAGE, differences

pytestmark = pytest.mark.torch

DEEP = replace(ODD, layers=8)
INDEX_BYTES = 8
"""Of the place that the square of a parameter has among all."""
SCHEDULES = {
    "1f1b": build("1f1b", devices=2, microbatches=4),
    "interleaved": build("interleaved", devices=2, microbatches=4, chunks=4),
    "breadth-first": build("breadth-first", devices=2, microbatches=4, chunks=4),
    "slices": build("seq1f1b", devices=2, microbatches=4, slices=2),
    "split backward": build("zb-v", devices=2, microbatches=4),
    "recomputed, four ranks": recompute_all(
        build("breadth-first", devices=1, microbatches=4, chunks=4)
    ),
}


def _plan(schedule: Schedule, *, tied: bool = False) -> StepPlan:
    return plan_of(schedule, replace(DEEP, tied=tied), torch.float64)


def _sharded(name: str, weights: int, gradients: int, **sizes: int) -> Schedule:
    schedule = build(name, **sizes)  # type: ignore[arg-type]
    return shard(schedule, weights=weights, gradients=gradients, rule=BY_NUMBER)


@pytest.mark.parametrize(("name", "tied"), one_of(3, product(SCHEDULES, (False, True))))
def test_three_clipped_steps_are_those_of_replicas_that_have_everything(
    ranks: Crew, name: str, tied: bool
) -> None:
    """Losses, norms, values, main weights, moments, and then the gradient of one more batch."""
    schedule = SCHEDULES[name]
    replicas, plan = 4 // schedule.shape.devices, _plan(schedule, tied=tied)
    right = ranks.run(trained_with, plan, replicas, "none")
    for mine, theirs in zip(ranks.run(trained_with, plan, replicas, "full"), right):
        assert not differences(mine, theirs, BOUNDS[torch.float64])


@pytest.mark.parametrize("buffers", one_of(3, [((1, 1),), ((2, 2),), ((3, 1),)]))
def test_a_stage_that_is_gathered_and_reduced_many_times_learns_the_same(
    ranks: Crew, buffers: tuple[int, int]
) -> None:
    """In the interleaved order stages leave their buffers to others again and again."""
    plain = build("interleaved", devices=2, microbatches=4, chunks=4)
    right = ranks.run(trained_with, _plan(plain, tied=True), 2, "none")
    for rule in (BY_NUMBER, FARTHEST):
        schedule = shard(plain, weights=buffers[0], gradients=buffers[1], rule=rule)
        assert max(op.mb for op in schedule.lane(0, "collective") if op.kind == "Z") > 0
        for mine, theirs in zip(
            ranks.run(trained_with, _plan(schedule, tied=True), 2, "full"), right
        ):
            assert not differences(mine, theirs, BOUNDS[torch.float64])


def test_a_rank_alone_adds_up_all_that_its_buffer_took(ranks: Crew) -> None:
    """Without others to add up with, a second reduction must not replace the first."""
    plain = build("breadth-first", devices=1, microbatches=4, chunks=2)
    often = _sharded("interleaved", 1, 1, devices=1, microbatches=4, chunks=2)
    right, found = (
        ranks.run(trained_alone, _plan(schedule), kind)[0]
        for schedule, kind in ((plain, "none"), (often, "full"))
    )
    for mine, theirs in zip(found, right):
        assert mine == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "weights"), [(n, w) for n in ("breadth-first", "interleaved") for w in (1, 2)]
)
def test_section_6_a_run_gathers_as_often_as_the_schedule_says(
    ranks: Crew, name: str, weights: int
) -> None:
    """Executed gathers of each device, at p = 4, v = 4, m = 16 with stages of one layer."""
    sizes = {"devices": 4, "microbatches": 16, "chunks": 4}
    schedule = _sharded(name, weights, 4, **sizes)
    expected = {
        ("breadth-first", 1): [7] * 4,
        ("breadth-first", 2): [6] * 4,
        ("interleaved", 1): [75, 99, 85, 61],
        ("interleaved", 2): [44, 20, 32, 56],
    }[name, weights]
    plan = plan_of(schedule, replace(SMALL, layers=16), torch.float32, length=4)
    assert [each.ran.count("G") for each in ranks.run(collected, plan, 1)] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_gather_and_each_reduction_moves_its_stage_once(
    ranks: Crew, dtype: torch.dtype
) -> None:
    """Values as they are computed with, gradients in 32 bits, to or from n - 1 other ranks."""
    schedule = _sharded("breadth-first", 1, 2, devices=2, microbatches=2, chunks=2)
    plan = plan_of(schedule, replace(ODD, vocabulary=40), dtype)
    for device, found in enumerate(ranks.run(collected, plan, 2)[:2]):
        sizes = [plan.layout.parameters(stage).stored for stage in (device, device + 2)]
        first, last = sizes
        assert Counter(found.ran) == {"G": 3, "Z": 2}
        # the last stage stays over the turn; half of each stage is sent
        assert found.sent["G"] == pytest.approx((2 * first + last) / 2 * dtype.itemsize, abs=4)
        assert found.sent["Z"] == pytest.approx((first + last) / 2 * 4, abs=8)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_collective_that_is_left_out_or_late_is_seen(ranks: Crew, fault: str) -> None:
    plain = build("breadth-first", devices=2, microbatches=2, chunks=4)
    right = ranks.run(trained_with, _plan(plain), 2, "none")
    found = ranks.run(trained_with_fault, _plan(plain), 2, fault)
    for mine, theirs in zip(found, right):
        assert differences(mine, theirs, 1e-3)


def test_what_a_buffer_holds_after_its_last_use_is_read_by_nobody(ranks: Crew) -> None:
    """It is made no number as soon as the last op of a stage has ended."""
    plan = _plan(build("interleaved", devices=2, microbatches=4, chunks=4))
    right, found = (
        ranks.run(losses_with_spoiled_buffers, plan, 2, kind)[0] for kind in ("none", "full")
    )
    for mine, theirs in zip(found, right):
        assert mine == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize(
    "schedule", one_of(3, ((each,) for each in SCHEDULES.values())), ids=SCHEDULES.keys()
)
def test_an_evaluation_gathers_what_its_forwards_read(ranks: Crew, schedule: Schedule) -> None:
    replicas, plan = 4 // schedule.shape.devices, _plan(schedule, tied=True)
    right = ranks.run(evaluated, plan, replicas, "none")
    for mine, theirs in zip(ranks.run(evaluated, plan, replicas, "full"), right):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-12)
        assert {*mine.kinds} == {"F", "N", "G"} & {*schedule.table.kinds, "G"}


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", one_of(2, [(torch.bfloat16,), (torch.float64,)]))
def test_a_checkpoint_serves_runs_that_share_otherwise(
    ranks: Crew, tmp_path: Path, dtype: torch.dtype
) -> None:
    halves, quarters = (
        plan_of(schedule, replace(ODD, tied=True), dtype)
        for schedule in (
            build("breadth-first", devices=2, microbatches=4, chunks=2),
            build("1f1b", devices=1, microbatches=2),
        )
    )
    right = ranks.run(trained_with, quarters, 4, "none", "", 4)[0].outcomes[-2]
    for number, (plan, replicas, how) in enumerate([(halves, 2, "full"), (quarters, 4, "none")]):
        ranks.run(stored, plan, replicas, how, tmp_path / str(number))
        for other, owners, kind in [(quarters, 4, "full"), (halves, 2, "optimizer")]:
            for found in ranks.run(resumed, other, owners, kind, tmp_path / str(number)):
                assert found.loss == pytest.approx(right.loss, rel=BOUNDS[dtype])
                assert found.norm == pytest.approx(right.norm, rel=10 * BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_memory_is_what_was_predicted_and_less_than_without(
    ranks: Crew, dtype: torch.dtype
) -> None:
    """Ranges and buffers of each rank, within 2 %; stages differ in size."""
    for name, devices in (("breadth-first", 2), ("interleaved", 2)):
        schedule = build(name, devices=devices, microbatches=4, chunks=4)
        model = replace(DEEP, hidden=64, ffn=96, vocabulary=301, tied=True)
        plan, owners = plan_of(schedule, model, dtype), 4 // devices
        workload = Workload.of(schedule.shape, plan.layout.model, plan.lengths[0])
        whole = footprints(schedule, workload)
        buffers = [_buffers(plan, device) for device in range(devices)]
        expected = footprints(schedule, workload, owners=owners, gathered=buffers)
        for rank, found in enumerate(ranks.run(held_between_steps, plan, owners)):
            assert found == pytest.approx(expected[rank % devices].held, rel=0.02)
            assert found < whole[rank % devices].held


def _buffers(plan: StepPlan, device: int) -> Gathered:
    """Which stages use each buffer of a device."""
    rotation = rotation_of(shard_weights(plan.schedule, TWO_BUFFERS), device)
    return Gathered(rotation.users("weight"), rotation.users("dw"))


def _held(plan: StepPlan, owner: int, kind: str) -> int:
    """Bytes of values, main weights, gradients and moments that one of four ranks has: all that is
    not shared, owned shares of the rest, and the buffers in which stages take turns."""
    narrow, main = plan.layout.dtype.itemsize, plan.layout.main.itemsize
    apart = main if narrow < main else 0  # otherwise values are the main weights
    size = {stage: plan.layout.parameters(stage).stored for stage in range(plan.layout.stages)}
    share = {stage: n * (owner + 1) // 4 - n * owner // 4 for stage, n in size.items()}
    whole, owned = sum(size.values()), sum(share.values())
    if kind == "none":
        return whole * (narrow + apart + main + 2 * main)
    if kind == "optimizer":
        return whole * (narrow + main) + owned * (apart + 2 * main)
    weights, gradients = _buffers(plan, 0)
    taking_turns = sum(share[s] for users in gradients if len(users) > 1 for s in users)
    return (
        owned * (narrow + apart + 2 * main)
        + taking_turns * main
        + sum(max(size[s] for s in users) for users in weights) * narrow
        + sum(max(size[s] for s in users) for users in gradients) * main
    )


@pytest.mark.parametrize(
    ("name", "dtype"),
    one_of(3, product(("breadth-first", "interleaved"), (torch.float32, torch.bfloat16))),
)
@pytest.mark.matrix
def test_what_is_alive_in_a_step_are_owned_shares_and_buffers_and_the_page_says_so(
    ranks: Crew, name: str, dtype: torch.dtype
) -> None:
    """To the byte: everything else that is alive does not depend on what is shared."""
    schedule = build(name, devices=1, microbatches=4, chunks=4)
    plan = plan_of(schedule, replace(DEEP, hidden=64, ffn=96), dtype)
    sums = dict.fromkeys(SHARDINGS, 0)
    for owner, live in enumerate(ranks.run(live_bytes, plan, 4)):
        held = {kind: _held(plan, owner, kind) for kind in SHARDINGS}
        beside = {kind: live[kind] - held[kind] for kind in SHARDINGS}
        if owner:  # of ranks that have the same, the first one alone takes squares
            beside["none"] += INDEX_BYTES * len(plan.layout.names)
        assert set(beside.values()) == {beside["none"]}
        assert 0 <= beside["none"] < 0.02 * held["full"]
        assert live["full"] < live["optimizer"] < live["none"]
        sums = {kind: sums[kind] + held[kind] for kind in SHARDINGS}
    each = (f"{held / plan.layout.model.parameters / 4:.3g}" for held in sums.values())
    row = f"| {name} | {str(dtype).removeprefix('torch.')} | {' | '.join(each)} |"
    assert row in PAGE.read_text()


def test_plans_that_use_other_buffers_take_turns(ranks: Crew) -> None:
    """One plan gives every stage a gradient buffer to itself, the other lets stages of unequal
    sizes share one; the buffers of the first are lengthened for it."""
    order = build("interleaved", devices=2, microbatches=4, chunks=4)
    few = shard(order, weights=1, gradients=1, rule=BY_NUMBER)
    right = ranks.run(trained_with_two_plans, (_plan(order), _plan(order)), 2, "none")
    for plans in ((_plan(order), _plan(few)), (_plan(few), _plan(order))):
        found = ranks.run(trained_with_two_plans, plans, 2, "full")
        for mine, theirs in zip(found, right):
            for one, other in zip(mine, theirs):
                assert one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize(("tied", "kind"), one_of(3, product((False, True), ("optimizer", "full"))))
def test_ranges_inside_of_groups_and_sums_over_groups_give_the_same(
    ranks: Crew, kind: str, tied: bool
) -> None:
    """Four replicas in two groups of two; also of one, which is to share nothing."""
    plan = plan_of(
        build("breadth-first", devices=1, microbatches=2, chunks=2),
        replace(ODD, tied=tied),
        torch.float64,
    )
    right = ranks.run(trained_with, plan, 4, "none")
    for sharers in (1, 2):
        found = ranks.run(trained_with, plan, 4, kind, "", 3, sharers)
        for mine, theirs in zip(found, right):
            assert not differences(mine, theirs, BOUNDS[torch.float64])
        owned = [sum(len(piece.main) for piece in run.pieces) for run in found]
        assert sum(owned) == 4 // sharers * sum(len(piece.main) for piece in right[0].pieces)


def test_groups_that_do_not_divide_the_replicas_are_refused() -> None:
    mesh = Mesh(Grid(replica=4))
    with pytest.raises(RunError, match="4 ranks hold the same weights") as error:
        sharding_named("full", 3).groups(mesh)
    assert error.value.hint == "set shard_ranks to a divisor of 4, or to 0 for all of them"


def test_a_schedule_with_gathers_is_refused_where_weights_are_whole() -> None:
    schedule = _sharded("1f1b", 1, 1, devices=1, microbatches=2)
    with pytest.raises(RunError, match="has ops of kind G, Z, but the weights") as error:
        _plan(schedule).program(2)
    assert 'shard = "full"' in error.value.hint
