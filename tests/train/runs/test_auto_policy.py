"""Runs that choose their data policy: as if it had been written by hand, and kept when they go
on."""

import json

import pytest

from train.runs.ranks import Ran, Setting, fresh

pytestmark = pytest.mark.torch

AUTO = (
    "data.policy=auto",
    "pipeline.schedule=chunkflow-paced",
    "pipeline.slices=1",
    "data.slice_tokens=9",
)


def chosen(ran: Ran) -> dict[str, dict[str, object]]:
    keys: dict[str, dict[str, object]] = json.loads((ran.folder / "policy.json").read_text())[
        "keys"
    ]
    return keys


def by_hand(keys: dict[str, dict[str, object]]) -> list[str]:
    data, options = keys["data"], keys["pipeline"]["options"]
    assert isinstance(options, dict)
    changes = [f"data.{key}={value}" for key, value in data.items() if value]
    return changes + [f"pipeline.options.{key}={value}" for key, value in options.items()]


def test_a_run_with_a_chosen_policy_equals_one_with_the_policy_by_hand(setting: Setting) -> None:
    """Records byte for byte, straight and continued with less memory than when it was chosen."""
    name, common = fresh("policy"), (*AUTO, "optimizer.schedule_steps=8")
    first = setting.run(*common, "run.steps=4", name=name)
    assert first.codes == (0, 0), first.said
    assert ["policy: " in said for said in first.said] == [True, False]
    assert "flex is not compared: mesh.sequence is 1" in first.said[0]
    keys = chosen(first)
    again = setting.run(*common, name=name)
    assert again.codes == (0, 0), again.said
    assert chosen(again) == keys
    policy = keys["data"]["policy"]
    assert policy in ("pack", "chunk")
    assert f'policy = "{policy}"' in (again.folder / "config.toml").read_text()
    rest = [change for change in AUTO[1:] if "slice_tokens" not in change]
    hand = setting.run(*rest, *by_hand(keys), name=fresh("by-hand"))
    assert hand.codes == (0, 0), hand.said
    assert again.records == hand.records


def test_the_memory_that_there_is_decides_too(setting: Setting) -> None:
    none = setting.run(*AUTO, "plan.memory=1", name=fresh("no-room"))
    assert all(none.codes), none.said
    assert any("no policy can be run" in cause for cause in none.causes), none.said
