"""Which policies a run may have, and the groups that it chooses from."""

from pathlib import Path

import pytest

from penstock.errors import ShapeError
from penstock.files import save
from penstock.plan.grouping import Grouping
from penstock.schedules import build
from penstock.train.loop.plan_choice import refuse_policy, setups
from penstock.train.loop.setup import layout_of
from train.samples import short

pytestmark = pytest.mark.torch

SMALL = ("model.preset=tiny", "batch.length=32", "batch.microbatches=8", "pipeline.devices=4")


def _refuse(*changes: str, processes: int = 4) -> None:
    settings = short(*SMALL, *changes)
    refuse_policy(settings, layout_of(settings, processes))


@pytest.mark.parametrize("policy", ["fixed", "adaptive", "improving"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "interleaved"])
def test_schedules_with_an_order_for_any_group_have_all_policies(
    policy: str, schedule: str
) -> None:
    _refuse(f"pipeline.schedule={schedule}", f"plan.policy={policy}")


@pytest.mark.parametrize("policy", ["adaptive", "improving"])
def test_one_device_has_one_order(policy: str) -> None:
    with pytest.raises(ShapeError, match=f'plan.policy is "{policy}", but a pipeline of one'):
        _refuse(f"plan.policy={policy}", "pipeline.devices=1", processes=1)


def test_a_file_has_no_groups(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    save(build("1f1b", devices=4, microbatches=8), path)
    with pytest.raises(ShapeError, match="is a file, which has one order"):
        _refuse("plan.policy=adaptive", f"pipeline.schedule={path}")
    _refuse("plan.policy=improving", f"pipeline.schedule={path}")


def test_one_microbatch_has_no_groups() -> None:
    with pytest.raises(ShapeError, match="gpipe has no groups with batch"):
        _refuse("plan.policy=adaptive", "batch.microbatches=1")


@pytest.mark.parametrize("schedule", ["stp", "po-h"])
def test_what_belongs_together_is_not_ordered_by_a_solver(schedule: str) -> None:
    with pytest.raises(ShapeError, match=f"{schedule}.* has pairs, loans, gangs or copies"):
        _refuse("plan.policy=improving", f"pipeline.schedule={schedule}", "batch.microbatches=12")


def test_groups_are_those_of_the_schedule_and_the_batch_stays() -> None:
    settings = short(*SMALL, "pipeline.schedule=1f1b", "plan.policy=adaptive", "plan.rows=[2]")
    found = dict(setups(settings, layout_of(settings, 4)))
    assert [*found] == [
        Grouping(1, 1, 8),
        *(Grouping(group, 2, 4) for group in range(1, 5)),
        *(Grouping(group, 1, 8) for group in range(2, 9)),
    ]
    for way, setup in found.items():
        assert way.size * way.microbatches == 8
        assert setup.schedule.shape.microbatches == len(setup.lengths) == way.microbatches
    assert found[Grouping(2, 1, 8)].schedule.name == "1f1b+group2"


def test_an_order_that_is_to_be_improved_begins_with_halved_backwards() -> None:
    settings = short(*SMALL, "pipeline.schedule=1f1b", "plan.policy=improving")
    assert {*layout_of(settings, 4).schedule.table.kinds} == {*"FIW"}
