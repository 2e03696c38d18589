"""Runs that choose their plan: as if it had been written by hand, and kept when they go on."""

from json import dumps, loads
from pathlib import Path

import pytest

from penstock.train.auto_plan import agreed
from profiling.made_up import profile
from train.runs.ranks import Ran, Setting, fresh

pytestmark = pytest.mark.torch

PLAIN = ("run.dtype=float32", "optimizer.warmup_steps=0")
AUTO = (*PLAIN, "plan.auto=true", "pipeline.schedule=auto", "pipeline.slices=1")
PLAN_KEYS = ("pipeline", "mesh", "batch")


@pytest.fixture(scope="module")
def measured(setting: Setting) -> Path:
    path = setting.folder / "made-up.json"
    path.write_text(dumps(profile()))
    return path


def chosen(ran: Ran) -> dict[str, dict[str, object]]:
    keys: dict[str, dict[str, object]] = loads((ran.folder / "plan.json").read_text())["keys"]
    return keys


def another_machine() -> None:
    """This process believes that it is on another machine than before."""
    agreed.made_on = lambda device: {"device": "another processor", "cores": 1.0}


def test_a_run_with_a_chosen_plan_equals_one_with_the_plan_by_hand(
    setting: Setting, measured: Path
) -> None:
    """Records byte for byte, straight and continued."""
    name = fresh("chosen")
    common = (*AUTO, f"plan.profile={measured}", "optimizer.schedule_steps=8")
    first = setting.run(*common, "run.steps=4", name=name)
    assert first.codes == (0, 0), first.said
    assert ["plan: " in said for said in first.said] == [True, False]
    keys = chosen(first)
    assert keys["pipeline"]["devices"] == 2  # as the configuration has it
    again = setting.run(*common, name=name)
    assert again.codes == (0, 0), again.said
    assert chosen(again) == keys
    by_hand = [
        f"{section}.{key}={value}" for section in PLAN_KEYS for key, value in keys[section].items()
    ]
    hand = setting.run(*PLAIN, *by_hand, name=fresh("by-hand"))
    assert hand.codes == (0, 0), hand.said
    assert again.records == hand.records


def test_a_plan_is_kept_on_another_machine_and_it_is_said(setting: Setting, measured: Path) -> None:
    name, common = fresh("moved"), (*AUTO, f"plan.profile={measured}", "run.steps=1")
    first = setting.run(*common, "log.report=true", name=name, flags=("--json",))
    moved = setting.run(*common, name=name, prepare=another_machine)
    assert (first.codes, moved.codes) == ((0, 0), (0, 0)), moved.said
    assert chosen(moved) == chosen(first)
    told = loads(first.said[0][first.said[0].index("{") :])
    assert told["profile_seconds"] == loads((first.folder / "plan.json").read_text())["seconds"]
    assert told["median_seconds"] > 0
    assert f"warning: {measured} is a profile of another machine" in moved.said[0]
    assert "is another processor" in moved.said[0]


def test_other_ranks_choose_again_and_say_why(setting: Setting, measured: Path) -> None:
    name, common = fresh("fewer"), (*AUTO, f"plan.profile={measured}", "pipeline.devices=0")
    first = setting.run(*common, "run.steps=1", name=name)
    alone = setting.run(*common, "run.steps=2", name=name, ranks=1)
    assert (first.codes, alone.codes) == ((0, 0), (0,)), alone.said
    assert "chosen again, because ranks was 2 and is 1" in alone.said[0]
    assert chosen(alone)["pipeline"]["devices"] == 1
    assert [record["step"] for record in alone.metrics] == [1, 2]


@pytest.mark.matrix
def test_ranks_that_have_no_profile_measure_their_machine(setting: Setting) -> None:
    ran = setting.run(*AUTO, "run.steps=1", name=fresh("measured"))
    assert ran.codes == (0, 0), ran.said
    record = loads((ran.folder / "profile.json").read_text())
    assert record["collectives"]
    assert record["case"]["tokens"] == 64
    assert "s for a step, the best of" in ran.said[0]
