"""What policies propose at times that are given: no process of a run is needed for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from sys import maxsize

import pytest
import torch

from penstock.cost.model import UnitCost
from penstock.plan.adaptive import schedule_of_grouping
from penstock.plan.grouping import Grouping
from penstock.run.observe.step_times import MeasuredTimes, measured_times
from penstock.run.policies.adaptive_group import AdaptiveGroup
from penstock.run.policies.improving_order import STORED, ImprovingOrder
from penstock.run.policies.memory_room import MemoryRoom
from penstock.run.policies.policy import Fixed
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from penstock.search.exact import solver_process
from penstock.sim import simulate
from penstock.transform import split_backward
from run.plans import plan_of

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
EVERYTHING = MemoryRoom([maxsize] * 4, CPU)
GAIN = Fraction(1, 50)


def _times(plan: StepPlan, hop: int = 0, slow_stage: int = -1) -> MeasuredTimes:
    """Of a step in which F, I and W take a second each, twice that on a slow stage."""
    ops = plan.schedule.table.ops()
    seconds = {op: Fraction(2 if op.kind == "B" else 1) for op in ops}
    slow = {op: time * (2 if op.stage == slow_stage else 1) for op, time in seconds.items()}
    return measured_times(simulate(plan.schedule, UnitCost(op_times=slow, hop=Fraction(hop))))


def _ways(*groups: int) -> dict[Grouping, StepPlan]:
    return {
        way: plan_of(schedule_of_grouping(lambda m: build("1f1b", devices=4, microbatches=m), way))
        for way in (Grouping(group, 1, 16) for group in groups)
    }


def test_the_group_follows_the_network_up_and_down() -> None:
    """F + B is 3: 2c <= 3 (group - 1) hides transfers of c; makespans are those of the paper."""
    ways = _ways(1, 2, 4, 16)
    policy, plan = AdaptiveGroup(ways, GAIN), ways[Grouping(1, 1, 16)]
    found = []
    for hop in (0, 1, 2, 2, 1, 0):
        proposal = policy.propose(plan, _times(plan, hop))
        if proposal is not None:
            plan = next(p for p in ways.values() if p.schedule.digest == proposal.schedule.digest)
            found.append((hop, proposal.schedule.name, proposal.before, proposal.after))
    assert found == [
        (1, "1f1b+group2", 85, 63),
        (2, "1f1b+group4", 74, 69),
        (1, "1f1b+group2", 63, 63),
        (0, "1f1b", 57, 57),
    ]


def test_a_group_that_has_no_room_is_never_taken() -> None:
    ways = _ways(1, 2)
    plan = ways[Grouping(1, 1, 16)]
    found = AdaptiveGroup(ways, GAIN).propose(plan, _times(plan, hop=9))
    assert found is not None
    assert found.schedule.name == "1f1b+group2"


def test_a_fixed_plan_is_fixed() -> None:
    plan = plan_of(build("1f1b", devices=4, microbatches=4))
    assert Fixed().propose(plan, _times(plan, hop=9)) is None


@contextmanager
def _improving(folder: Path, room: MemoryRoom = EVERYTHING) -> Iterator[ImprovingOrder]:
    policy = ImprovingOrder(room, folder, GAIN, 0.3)
    try:
        yield policy
    finally:
        policy.close()


@pytest.mark.processes
def test_a_better_order_is_found_beside_the_run_and_kept_for_the_next(tmp_path: Path) -> None:
    plan = plan_of(split_backward(build("1f1b", devices=4, microbatches=6)))
    times = _times(plan, slow_stage=3)
    with _improving(tmp_path) as first:
        assert first.propose(plan, times) is None  # the solver has just been asked
        first.wait()
        found = first.propose(plan, times)
    assert found is not None
    assert found.schedule.name == "1f1b+split+improved"
    profile = times.profile(UnitCost())
    assert found.before == simulate(plan.schedule, profile).makespan
    assert found.after == simulate(found.schedule, profile).makespan < found.before
    with _improving(tmp_path) as second:
        again = second.propose(plan, times)
    assert again == found._replace(why=STORED)
    improved = StepPlan(plan.layout, found.schedule, plan.lengths)
    with _improving(tmp_path) as third:
        assert third.propose(improved, _times(improved, slow_stage=3)) is None  # it is as good


@pytest.mark.processes
def test_an_order_that_has_no_room_is_not_taken(tmp_path: Path) -> None:
    plan = plan_of(split_backward(build("1f1b", devices=4, microbatches=6)))
    with _improving(tmp_path, MemoryRoom([1] * 4, CPU)) as policy:
        times = _times(plan, slow_stage=3)
        policy.propose(plan, times)
        policy.wait()
        assert policy.propose(plan, times) is None


@pytest.mark.processes
def test_a_solver_that_fails_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_process, "__name__", "penstock.no_such_module")
    plan = plan_of(split_backward(build("1f1b", devices=4, microbatches=6)))
    with _improving(tmp_path) as policy:
        times = _times(plan, slow_stage=3)
        policy.propose(plan, times)
        policy.wait()
        assert policy.propose(plan, times) is None
        (remark,) = policy.remarks
    assert remark.startswith("the solver found no order: ")


def test_a_damaged_file_of_an_order_is_no_order(tmp_path: Path) -> None:
    from penstock.run.policies.known_orders import KnownOrders

    orders, schedule = KnownOrders(tmp_path), build("1f1b", devices=2, microbatches=2)
    orders.store("a" * 64, schedule)
    assert orders.stored("a" * 64) == schedule
    assert orders.stored("b" * 64) is None
    (file,) = tmp_path.iterdir()
    file.write_text("{")
    assert orders.stored("a" * 64) is None
